"""The compiled heart of the reference scheduler: an event loop over plain arrays.

All times are seconds. Two clocks run side by side: the wall clock, and the *service clock* of shared accelerators,
which stands still during dispatch pauses: V(t) = t - time paused until t. On it a pause changes nothing, so the events
of all shared accelerators stay valid when one begins, and rounds of slices can be jumped in closed form.
"""
