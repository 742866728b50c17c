//! Counts what the registry does, so that a test can say that it is as much at every size.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// One lookup in a map, or one look at or change of a slot or of its links.
#[inline(always)]
pub(crate) fn step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// How many steps this takes.
#[cfg(test)]
pub(crate) fn count<T>(act: impl FnOnce() -> T) -> (u64, T) {
    let before = STEPS.with(std::cell::Cell::get);
    let done = act();
    (STEPS.with(std::cell::Cell::get) - before, done)
}
