//! A clock that stands still until a scenario lets deadlines pass. How fast time goes says nothing about how far a task
//! is, so a deadline may pass between any two steps; only their own order is kept.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    ops::Add,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};

#[derive(Default)]
struct Clock {
    now: Duration,
    serial: u64,
    deadlines: BTreeMap<(Duration, u64), Waker>,
    /// Who waits for a deadline to let pass.
    watcher: Option<Waker>,
}

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::default();
}

/// Begins anew. Each execution is one of the same thread.
pub(crate) fn reset() {
    CLOCK.take();
}

fn now() -> Duration {
    CLOCK.with_borrow(|clock| clock.now)
}

impl Clock {
    /// The next deadline that is not later than this.
    fn next(&self, last: Duration) -> Option<Duration> {
        let ((next, _), _) = self.deadlines.first_key_value()?;
        Some(*next).filter(|next| *next <= last)
    }
}

/// Lets so many deadlines pass that are not later than this, each at some moment after it was set.
pub(crate) async fn let_deadlines_pass(how_many: usize, last: Duration) {
    for _ in 0..how_many {
        poll_fn(|context| {
            CLOCK.with_borrow_mut(|clock| {
                clock.watcher = Some(context.waker().clone());
                clock.next(last).map_or(Poll::Pending, |_| Poll::Ready(()))
            })
        })
        .await;
        shuttle::future::yield_now().await;
        let due = CLOCK.with_borrow_mut(|clock| {
            let Some(next) = clock.next(last) else {
                return BTreeMap::new();
            };
            clock.now = clock.now.max(next);
            let later = clock.deadlines.split_off(&(clock.now, u64::MAX));
            std::mem::replace(&mut clock.deadlines, later)
        });
        due.into_values().for_each(Waker::wake);
    }
}

/// A moment of this clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        now().saturating_sub(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

struct Sleep {
    until: Duration,
    serial: Option<u64>,
}

impl Sleep {
    fn forget(&mut self) {
        if let Some(serial) = self.serial.take() {
            CLOCK.with_borrow_mut(|clock| clock.deadlines.remove(&(self.until, serial)));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.forget();
        if now() >= self.until {
            return Poll::Ready(());
        }
        let until = self.until;
        let (serial, watcher) = CLOCK.with_borrow_mut(|clock| {
            clock.serial += 1;
            let deadline = (until, clock.serial);
            clock.deadlines.insert(deadline, context.waker().clone());
            (clock.serial, clock.watcher.take())
        });
        self.serial = Some(serial);
        if let Some(watcher) = watcher {
            watcher.wake();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.forget();
    }
}

pub(crate) async fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration).await;
}

async fn sleep_until(deadline: Instant) {
    let (until, serial) = (deadline.0, None);
    Sleep { until, serial }.await;
}

/// The deadline came first.
#[derive(Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout<F: Future>(limit: Duration, act: F) -> Result<F::Output, Elapsed> {
    timeout_at(Instant::now() + limit, act).await
}

pub(crate) async fn timeout_at<F: Future>(deadline: Instant, act: F) -> Result<F::Output, Elapsed> {
    let mut act = pin!(act);
    let mut over = pin!(sleep_until(deadline));
    poll_fn(|context| match act.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => over.as_mut().poll(context).map(|()| Err(Elapsed)),
    })
    .await
}
