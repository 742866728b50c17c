//! The state machine of one binding.

use core::time::Duration;

use crate::{
    action::{Action, Attempt, Outlook, Refusal},
    counters::Counters,
    gate::Urgency,
    jitter::{Prng, Spread},
    loss::{Cause, Loss},
    openings::{Opening, Openings, Side},
    park::Park,
    policy::Policy,
    schedule::Schedule,
    snapshot::Snapshot,
    time::Timestamp,
    transition::{Reason, State, Transition},
    verdict::{Circumstances, Verdict, judge},
};

/// Says when the sessions of one binding may be opened.
///
/// It has no clock and does nothing: the caller tells it what happened and when, then asks [`poll`](Self::poll) what
/// to do, until that answers `None`, and again at [`timeout`](Self::timeout). A time before the last one told is taken
/// as the last. Sessions are named by the generation that their attempt bore; a generation that is no longer live
/// changes nothing, and events say so by answering `false`.
///
/// Whoever drops a [`Budget`] loses its charges: keep one per binding for as long as the binding is configured.
#[derive(Debug, Clone)]
pub struct Budget {
    policy: Policy,
    prng: Prng,
    now: Timestamp,
    openings: Openings,
    /// Generation of the present home session, or of the last.
    home_generation: u64,
    /// The home session was needed once and is kept.
    held: bool,
    /// A call waits for the home session.
    attended: bool,
    /// The home session is wanted even when no call needs it.
    kept_open: bool,
    /// The host said to try now, and no attempt has begun since.
    woken: bool,
    charges: u32,
    /// Rounds that failed since the last proof, charged or not.
    strikes: u32,
    ever_opened: bool,
    ever_proven: bool,
    /// A demand for credentials was taken as expiry since the last proof.
    forgiven: bool,
    schedule: Schedule,
    park: Option<Park>,
    stopped: bool,
    reason: Reason,
    told: Option<Transition>,
    counters: Counters,
}

impl Budget {
    /// A budget that nothing has happened to. The same seed makes the same delays; give each binding its own.
    pub fn new(policy: Policy, seed: u64) -> Self {
        Self {
            schedule: Schedule::new(&policy),
            policy,
            prng: Prng::new(seed),
            now: Timestamp::ZERO,
            openings: Openings::default(),
            home_generation: 0,
            held: false,
            attended: false,
            kept_open: false,
            woken: false,
            charges: 0,
            strikes: 0,
            ever_opened: false,
            ever_proven: false,
            forgiven: false,
            park: None,
            stopped: false,
            reason: Reason::Fresh,
            told: None,
            counters: Counters::default(),
        }
    }

    /// What of the budget may be kept over the host's end; `since_epoch` is what the wall clock says. The host's end
    /// is no fault of the server's: sessions that are open or being opened then cost nothing.
    pub fn snapshot(&self, now: Timestamp, since_epoch: Duration) -> Snapshot {
        let now = now.max(self.now);
        let mut snapshot = Snapshot {
            taken: since_epoch,
            state: self.state(),
            wanted: self.held,
            woken: match self.park {
                Some(park) => park.is_woken(),
                None => self.woken,
            },
            charges: self.charges,
            failures: self.strikes,
            generation: self.openings.last_generation(),
            ever_opened: self.ever_opened,
            ever_proven: self.ever_proven,
            credentials_refused: self.forgiven,
            parked: self.park.map(|park| park.save(now)),
            ..Snapshot::default()
        };
        self.schedule.save(now, &mut snapshot);
        if self.openings.home().is_some() {
            // Its delay is over, or it would not have been opened.
            snapshot.delay = Duration::ZERO;
        }
        snapshot
    }

    /// A budget as it was. Connecting, unproven and proven are idle now, with their charges; waiting and parked keep
    /// what remained of their time when the snapshot was taken, and a probe that was out may be made again. Where the
    /// policy has become less patient, times are cut to what it would make them. The seed need not be the same; that
    /// the home session be kept open is to be said anew.
    pub fn restore(policy: Policy, seed: u64, now: Timestamp, snapshot: &Snapshot) -> Self {
        let mut budget = Self::new(policy, seed);
        budget.now = now;
        budget.openings = Openings::after(snapshot.generation);
        let keeps = matches!(snapshot.state, State::Waiting | State::Parked);
        budget.held = snapshot.wanted && keeps;
        budget.charges = snapshot.charges;
        budget.strikes = snapshot.failures;
        budget.ever_opened = snapshot.ever_opened;
        budget.ever_proven = snapshot.ever_proven;
        budget.forgiven = snapshot.credentials_refused;
        budget.schedule = Schedule::restored(now, snapshot, &budget.policy);
        budget.park = snapshot
            .parked
            .map(|parked| Park::restored(now, &parked, snapshot.woken, &budget.policy));
        budget.woken = snapshot.woken && budget.held && budget.park.is_none();
        budget
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Another policy from now on. Delays that run already keep their length.
    pub fn set_policy(&mut self, policy: Policy) {
        self.schedule.set_policy(&policy);
        self.policy = policy;
    }

    // What the host wants.

    /// The home session is needed: it is opened as soon as may be, and kept. No wake for a parked binding.
    pub fn hold(&mut self, now: Timestamp) {
        self.advance(now);
        if !self.held && !self.stopped {
            self.held = true;
            self.reason = Reason::Wanted;
        }
    }

    /// Whether calls wait for the home session, who are all told of an attempt's failure: it clears this. While they
    /// do, the delays that spare a server nobody waits for do not hold.
    pub fn attend(&mut self, now: Timestamp, waits: bool) {
        if waits {
            self.hold(now);
        }
        self.attended = waits;
    }

    /// Whether the home session is wanted even when no call needs it, as for a subscription: then it is opened again
    /// after a routine end too.
    pub fn keep_open(&mut self, now: Timestamp, keep: bool) {
        if keep {
            self.hold(now);
        }
        self.kept_open = keep;
    }

    /// What a call for the home session would meet now. Asking changes nothing.
    pub fn outlook(&self, now: Timestamp) -> Outlook {
        let now = now.max(self.now);
        if self.stopped {
            return Outlook::Stopped;
        }
        match self.openings.home() {
            Some((generation, home)) if home.is_open() => Outlook::Open { generation },
            Some(_) => Outlook::Connecting,
            None if self.is_barred(now) => Outlook::Parked(self.next_probe()),
            None => Outlook::Waiting(self.home_due(true)),
        }
    }

    /// A call was refused because the binding is parked: the probe comes at the latest a tenth of its interval after
    /// the last attempt.
    pub fn knock(&mut self, now: Timestamp) {
        self.advance(now);
        if let Some(park) = &mut self.park {
            park.knock(self.schedule.last_start());
        }
    }

    /// The host says to try now. Ends waiting and parking for one attempt, which still keeps the floor and the
    /// server's own wish. Wakes before that attempt are merged into one; a binding that waits for nothing is left
    /// alone. Does not give charges back: what is opened must prove itself.
    pub fn wake(&mut self, now: Timestamp) {
        let now = self.advance(now);
        if self.stopped {
            return;
        }
        if let Some(park) = &mut self.park {
            if park.wake(now) {
                self.reason = Reason::Woken;
                self.counters.wakes += 1;
            }
        } else if self.openings.home().is_none() && (self.held || self.strikes > 0) && !self.woken {
            self.woken = self.held;
            self.counters.wakes += 1;
            self.schedule.hurry(now);
            self.reason = Reason::Woken;
        }
    }

    /// Connections may have died unseen, as after the machine slept or the network changed. As [`wake`](Self::wake),
    /// but not where no probe is ever made: without retries, and where credentials are needed. What is open is the
    /// caller's to ask whether it lives.
    pub fn check(&mut self, now: Timestamp) {
        let needs_credentials = self.park.is_some_and(|park| park.why == Reason::Auth);
        if self.policy.max_retries > 0 && !needs_credentials {
            self.wake(now);
        }
    }

    /// How long to put such a check off, so that a fleet does not make all of them at once: a time within
    /// [`Policy::check_spread`], another with each seed.
    pub fn check_delay(&mut self) -> Duration {
        self.prng.spread().share(self.policy.check_spread)
    }

    /// It is over: nothing is opened any more. [`Reason::Shutdown`] for the owner's own word, [`Reason::Fatal`] for a
    /// panic. The first word counts.
    pub fn stop(&mut self, now: Timestamp, reason: Reason) {
        self.advance(now);
        if !self.stopped {
            self.stopped = true;
            self.reason = reason;
        }
    }

    // What to do, and when.

    /// What to do now; ask until it is `None`.
    pub fn poll(&mut self, now: Timestamp) -> Option<Action> {
        let now = self.advance(now);
        if self.stopped {
            return None;
        }
        if let Some((generation, home)) = self.openings.home_mut() {
            let due = home.probe_at(self.policy.healthy_after)? <= now;
            due.then(|| home.probed());
            return due.then_some(Action::Probe { generation });
        }
        let due = self.home_due(self.attended)? <= now;
        due.then(|| Action::Connect(self.start_home(now)))
    }

    /// Whether [`poll`](Self::poll) would begin a home attempt now, and how urgent that is. A caller with a
    /// [`Gate`](crate::Gate) passes it first and polls then, so that the attempt begins when it truly does.
    pub fn due(&self, now: Timestamp) -> Option<Urgency> {
        let now = now.max(self.now);
        if self.stopped || self.openings.home().is_some() {
            return None;
        }
        let due = self.home_due(self.attended)? <= now;
        due.then_some(match self.park {
            _ if self.attended => Urgency::Awaited,
            Some(park) if !park.is_woken() => Urgency::Probe,
            _ => Urgency::Reconnect,
        })
    }

    /// When to ask [`poll`](Self::poll) again if nothing happens before; it may have passed. `None`: not until
    /// something happens.
    pub fn timeout(&self) -> Option<Timestamp> {
        if self.stopped {
            return None;
        }
        match self.openings.home() {
            Some((_, home)) => home.probe_at(self.policy.healthy_after),
            None => self.home_due(self.attended),
        }
    }

    /// Leave to open one scoped session now. It must be answered with [`opened`](Self::opened), [`lost`](Self::lost)
    /// or [`closed`](Self::closed). Those who are told to wait should be served in the order they came.
    ///
    /// # Errors
    /// When it may be asked for again. A refusal for being parked counts as [`knock`](Self::knock).
    pub fn leave(&mut self, now: Timestamp) -> Result<Attempt, Refusal> {
        let now = self.advance(now);
        match self.may_leave(now) {
            Ok(()) => Ok(self.start(now, Side::Scoped)),
            Err(Refusal::Parked(_)) => {
                self.knock(now);
                Err(Refusal::Parked(self.next_probe()))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether [`leave`](Self::leave) would be given now. Asking changes nothing; a caller with a
    /// [`Gate`](crate::Gate) asks, passes it, and takes leave then.
    ///
    /// # Errors
    /// As those of [`leave`](Self::leave).
    pub fn may_leave(&self, now: Timestamp) -> Result<(), Refusal> {
        let now = now.max(self.now);
        if self.stopped {
            return Err(Refusal::Stopped);
        }
        if self.is_barred(now) {
            return Err(Refusal::Parked(self.next_probe()));
        }
        let at = self.scoped_due().map_err(Refusal::Wait)?;
        if now < at {
            return Err(Refusal::Wait(Some(at)));
        }
        Ok(())
    }

    // What happened.

    /// The session is open; that proves nothing. `false`: nobody wants it any more, close it.
    pub fn opened(&mut self, now: Timestamp, generation: u64) -> bool {
        let now = self.advance(now);
        if self.stopped {
            return false;
        }
        let Some(side) = self.openings.opened(generation, now) else {
            return false;
        };
        self.ever_opened = true;
        self.counters.opened += 1;
        if side == Side::Home {
            self.reason = Reason::Opened;
        }
        true
    }

    /// The session is proven: it answered a request of the host's (also with an error), or a probe after it lived
    /// [`Policy::healthy_after`]. Charges are cleared if it was opened in the present round; an old one does not vouch
    /// for a new one. `false`: that changed nothing.
    pub fn proven(&mut self, now: Timestamp, generation: u64) -> bool {
        self.advance(now);
        if self.stopped {
            return false;
        }
        let Some((side, round)) = self.openings.prove(generation) else {
            return false;
        };
        self.ever_proven = true;
        self.counters.proofs += 1;
        if round == self.openings.round() {
            self.charges = 0;
            self.strikes = 0;
            self.forgiven = false;
            self.park = None;
        }
        if side == Side::Home {
            self.reason = Reason::Answered;
        }
        true
    }

    /// The attempt failed or the session ended, with why. The owner's own closing is no loss: say
    /// [`closed`](Self::closed). `false`: that changed nothing.
    pub fn lost(&mut self, now: Timestamp, generation: u64, loss: Loss) -> bool {
        let now = self.advance(now);
        if self.stopped {
            return false;
        }
        // While charges stand a round lets out several openings only one by one, each after the delay; they may not
        // buy more openings than the budget has, so each that is still in doubt is paid for.
        let cost = if self.charges == 0 {
            1
        } else {
            self.openings.doubtful().max(1)
        };
        let Some((side, opening)) = self.openings.remove(generation) else {
            return false;
        };
        match opening.is_open() {
            true => self.counters.lost += 1,
            false => self.counters.failed += 1,
        }
        self.counters.causes[loss.cause as usize] += 1;
        if let Some(wait) = loss.not_before {
            self.schedule.wish(now, wait, &self.policy);
        }
        let verdict = judge(loss.cause, self.circumstances(&opening));
        let spread = self.prng.spread();
        self.execute(now, verdict, cost, spread);
        match side {
            Side::Home => self.home_gone(now, &opening, verdict, loss.cause, spread),
            Side::Scoped if self.openings.home().is_none() => {
                self.reason = why(&opening, verdict, loss.cause);
            }
            Side::Scoped => {}
        }
        true
    }

    /// The owner closed the session or gave the opening up: no loss, no charge. `false`: that changed nothing.
    pub fn closed(&mut self, now: Timestamp, generation: u64) -> bool {
        let now = self.advance(now);
        if self.stopped {
            return false;
        }
        let Some((side, _)) = self.openings.remove(generation) else {
            return false;
        };
        self.counters.closed += 1;
        if self.openings.doubtful() == 0 {
            if let Some(park) = &mut self.park {
                park.probe_given_up(now);
            }
        }
        if side == Side::Home {
            self.held = self.attended || self.kept_open;
            self.reason = Reason::Ended;
        }
        true
    }

    /// The owner lets the home session go, open or not, and whatever is done for its sake: it is opened again when
    /// somebody wants it. No loss and no charge; but what earlier failures delay or bar stays delayed and barred.
    /// Returns the generation of the session that the owner closes, or whose opening it gives up.
    pub fn let_go(&mut self, now: Timestamp) -> Option<u64> {
        let now = self.advance(now);
        if self.stopped {
            return None;
        }
        self.attended = false;
        self.woken = false;
        let home = self.openings.home().map(|(generation, _)| generation);
        match home {
            Some(generation) => {
                self.closed(now, generation);
            }
            None if self.held => {
                self.held = self.kept_open;
                self.reason = Reason::Ended;
            }
            None => {}
        }
        home
    }

    // Where it stands.

    /// Where the binding stands.
    pub fn standing(&self) -> Transition {
        let state = self.state();
        let home = self.openings.home().map(|(_, home)| home);
        Transition {
            state,
            reason: match (self.stopped, &self.park) {
                (false, Some(park)) if state == State::Parked => park.why,
                _ => self.reason,
            },
            attempt: match (state, home) {
                (State::Proven, _) => 0,
                (State::Connecting | State::Unproven, Some(home)) => home.number,
                _ => self.strikes,
            },
            charges: self.charges,
            generation: self.home_generation,
            next_try: match state {
                State::Parked => self.next_probe(),
                State::Waiting if self.held || self.park.is_some() => self.home_due(self.attended),
                State::Waiting => Some(self.earliest()),
                _ => None,
            },
        }
    }

    /// Where the binding stands, if that is not what was last taken, nor how it begins. Take it after each event to see
    /// every step.
    pub fn transition(&mut self) -> Option<Transition> {
        let standing = self.standing();
        let begins = self.told.is_none() && standing.reason == Reason::Fresh;
        if self.told.replace(standing) == Some(standing) || begins {
            return None;
        }
        Some(standing)
    }

    /// What was counted since the budget was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Scoped sessions that are open, as far as the budget was told.
    pub fn open_scoped(&self) -> usize {
        self.openings.open_scoped()
    }

    fn state(&self) -> State {
        if self.stopped {
            return State::Stopped;
        }
        let home = self.openings.home().map(|(_, home)| home);
        // The bar is shown also while an old home session serves: it is what a host can do something about.
        let barred = self
            .park
            .is_some_and(|park| !park.is_reviving() && !park.is_woken());
        match home {
            Some(home) if !home.is_open() => State::Connecting,
            _ if barred => State::Parked,
            Some(home) if home.is_proven() => State::Proven,
            Some(_) => State::Unproven,
            None if self.held || self.park.is_some() || self.now < self.penance() => State::Waiting,
            None => State::Idle,
        }
    }

    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    // When something may be opened.

    fn is_barred(&self, now: Timestamp) -> bool {
        self.park.is_some_and(|park| park.is_barred(now))
    }

    /// Why it is parked, also while an attempt from before is under way and the state is that of the attempt.
    #[cfg(feature = "tokio")]
    pub(crate) fn parked_for(&self) -> Option<Reason> {
        self.park.map(|park| park.why)
    }

    fn next_probe(&self) -> Option<Timestamp> {
        let at = self.park?.probe_at()?;
        Some(at.max(self.schedule.floor(&self.policy)))
    }

    /// The earliest time for whatever keeps the floor.
    fn earliest(&self) -> Timestamp {
        self.schedule.floor(&self.policy).max(self.penance())
    }

    /// The end of the delay that holds for everybody while failures stand.
    fn penance(&self) -> Timestamp {
        if self.strikes > 0 && self.park.is_none() {
            self.schedule.gate()
        } else {
            Timestamp::ZERO
        }
    }

    /// Whether what is in doubt may cost all that the budget has left.
    fn is_staked(&self) -> bool {
        let doubtful = self.openings.doubtful();
        self.charges > 0 && doubtful > 0 && self.charges.saturating_add(doubtful) > self.limit()
    }

    /// Charges that it may bear.
    fn limit(&self) -> u32 {
        if self.ever_opened {
            self.policy.max_retries
        } else {
            self.policy.max_initial_retries
        }
    }

    /// When the home session, which is not there, may be opened; `None`: not until something happens.
    fn home_due(&self, attended: bool) -> Option<Timestamp> {
        match self.park {
            // One home attempt a revival: if that failed, the park is barred again.
            Some(park) if park.is_reviving() => attended.then(|| self.earliest()),
            Some(_) => self.next_probe(),
            None if !(self.held || attended) || self.is_staked() => None,
            None if attended || self.woken => Some(self.earliest()),
            None => Some(self.earliest().max(self.schedule.unattended())),
        }
    }

    /// When a scoped session may be opened, unless the binding is barred; the error says when to ask again.
    fn scoped_due(&self) -> Result<Timestamp, Option<Timestamp>> {
        let home = self.openings.home();
        if let Some(park) = self.park {
            // Of a parked binding the home session goes first; one scoped session beside it may give the proof.
            return match home {
                Some((_, home)) if home.is_open() && self.openings.doubtful_scoped() == 0 => {
                    Ok(self.earliest())
                }
                None if !park.is_reviving() => Err(self.next_probe()),
                _ => Err(None),
            };
        }
        let unproven = self.openings.doubtful_scoped_any_round();
        if self.is_staked() || (!self.ever_proven && unproven >= self.policy.max_unproven) {
            Err(None)
        } else if self.ever_proven && self.strikes == 0 {
            Ok(self.schedule.not_before())
        } else {
            Ok(self.earliest())
        }
    }

    fn start_home(&mut self, now: Timestamp) -> Attempt {
        let asked_for = self.attended || self.woken || self.park.is_some_and(|p| p.is_woken());
        if !asked_for {
            self.schedule.unattended_started(now);
        }
        let reason = match self.park {
            Some(park) if park.is_woken() => Reason::Woken,
            Some(_) => Reason::Probe,
            None if self.woken => Reason::Woken,
            None if self.strikes > 0 || matches!(self.reason, Reason::Lost | Reason::Local) => {
                Reason::Retry
            }
            None => Reason::Wanted,
        };
        self.held = true;
        self.woken = false;
        let attempt = self.start(now, Side::Home);
        self.home_generation = attempt.generation;
        self.reason = reason;
        attempt
    }

    fn start(&mut self, now: Timestamp, side: Side) -> Attempt {
        if let Some(park) = &mut self.park {
            park.revive();
        }
        // A scoped opening that the floor does not hold up holds up nobody either.
        if side == Side::Home || !self.ever_proven || self.strikes > 0 {
            self.schedule.started(now);
        }
        if self.strikes > 0 {
            let spread = self.prng.spread();
            self.schedule.delay(now, self.strikes, &self.policy, spread);
        }
        self.counters.attempts += 1;
        let number = self.strikes.saturating_add(1);
        Attempt {
            generation: self.openings.begin(side, now, number),
            number,
        }
    }

    // What a loss does.

    fn circumstances(&self, opening: &Opening) -> Circumstances {
        Circumstances {
            open: opening.is_open(),
            proven: opening.is_proven(),
            present: opening.round == self.openings.round(),
            ever_proven: self.ever_proven,
            credentials_refused: self.forgiven || self.park.is_some(),
            may_reconnect: self.policy.max_retries > 0,
        }
    }

    fn execute(&mut self, now: Timestamp, verdict: Verdict, cost: u32, spread: Spread) {
        match verdict {
            Verdict::Stop => self.stop(now, Reason::Fatal),
            Verdict::Park(why) => {
                self.strike(now, spread);
                self.park_for(now, why, spread);
            }
            Verdict::Charge => {
                self.strike(now, spread);
                if let Some(park) = &mut self.park {
                    // The budget was spent before.
                    park.probe_failed(now, &self.policy, spread);
                    return;
                }
                self.charges = self.charges.saturating_add(cost);
                self.counters.charges += u64::from(cost);
                if self.charges > self.limit() {
                    let why = match (self.policy.max_retries, self.ever_opened) {
                        (_, false) => Reason::NeverConnected,
                        (0, true) => Reason::NoRetries,
                        (_, true) => Reason::Spent,
                    };
                    self.park_for(now, why, spread);
                }
            }
            Verdict::BackOff => {
                self.strike(now, spread);
                if let Some(park) = &mut self.park {
                    park.probe_failed_here(now, &self.policy, spread);
                }
            }
            Verdict::Forgive => {
                // All sessions of the round bear the same credentials: their demands are the same expiry.
                self.forgiven = true;
                self.openings.end_round();
            }
            Verdict::Excuse | Verdict::Rest => {}
        }
    }

    /// The round failed.
    fn strike(&mut self, now: Timestamp, spread: Spread) {
        self.openings.end_round();
        self.strikes = self.strikes.saturating_add(1);
        self.schedule.delay(now, self.strikes, &self.policy, spread);
    }

    fn park_for(&mut self, now: Timestamp, why: Reason, spread: Spread) {
        self.counters.parks += u64::from(self.park.is_none());
        match &mut self.park {
            Some(park) if park.why == why => park.probe_failed(now, &self.policy, spread),
            park => {
                let mut new = Park::new(now, why, &self.policy, self.ever_proven, spread);
                // A wake that had no attempt yet has it still.
                if core::mem::take(&mut self.woken) {
                    new.wake(now);
                }
                *park = Some(new);
            }
        }
    }

    /// The home session is no more, or the attempt to open it failed.
    fn home_gone(
        &mut self,
        now: Timestamp,
        opening: &Opening,
        verdict: Verdict,
        cause: Cause,
        spread: Spread,
    ) {
        if self.stopped {
            return;
        }
        if !opening.is_open() {
            self.attended = false;
        }
        if matches!(verdict, Verdict::Rest | Verdict::Forgive) {
            self.held = self.attended || self.kept_open;
        }
        let stable = opening.is_proven() && opening.life(now) >= self.policy.stable_after;
        if stable {
            self.schedule.stable();
        }
        if verdict == Verdict::Rest && stable {
            // Where it is kept open, it need not wait after a good life.
            self.schedule.at_once(now);
        } else {
            let can_park = !opening.is_proven() && cause != Cause::Local;
            self.schedule.back_off(now, can_park, &self.policy, spread);
        }
        self.reason = why(opening, verdict, cause);
    }
}

/// What is said of the state that a loss leads to.
fn why(opening: &Opening, verdict: Verdict, cause: Cause) -> Reason {
    match verdict {
        Verdict::Stop => Reason::Fatal,
        Verdict::Rest | Verdict::Forgive => Reason::Ended,
        _ if cause == Cause::Local => Reason::Local,
        _ if opening.is_open() => Reason::Lost,
        _ => Reason::Failed,
    }
}
