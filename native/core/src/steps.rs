//! Counts elementary steps in tests, so that linear time is asserted on counts and not on a clock.

#[cfg(test)]
thread_local! {
    static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Notes `n` steps; nothing outside of tests.
#[inline(always)]
pub(crate) fn add(n: usize) {
    #[cfg(test)]
    COUNT.with(|count| count.set(count.get() + n as u64));
    #[cfg(not(test))]
    let _ = n;
}

/// The steps that `work` takes on this thread.
#[cfg(test)]
pub(crate) fn of(work: impl FnOnce()) -> u64 {
    COUNT.with(|count| count.set(0));
    work();
    COUNT.with(std::cell::Cell::get)
}
