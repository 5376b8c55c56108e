package bootstrap

import (
	"cmp"
	"time"

	"better/compute/model"
	"better/compute/provider"
)

// Transitions lists, for every state, the states that a run can go to from it.
func Transitions() map[model.BootstrapStatus][]model.BootstrapStatus {
	return map[model.BootstrapStatus][]model.BootstrapStatus{
		model.Claiming:    {model.Identifying, model.Failed},
		model.Identifying: {model.Preparing, model.Failed},
		model.Preparing:   {model.Installing, model.Failed},
		model.Installing:  {model.Installed, model.Failed},
		model.Installed:   {model.Joined, model.Failed},
		model.Joined:      {model.Failed}, // only where its token turns out to be in two hands
		model.Failed:      {},
	}
}

// Timing is how long things may take. The zero value of a field means its default.
type Timing struct {
	// How long a run may stay in a state. A manifest may say more for claiming.
	ClaimVPS    time.Duration // 10 min
	ClaimMetal  time.Duration // 60 min
	Identifying time.Duration // 10 min
	Preparing   time.Duration // 30 min
	Installing  time.Duration // 60 min
	Installed   time.Duration // 15 min

	// Lease is how long a run belongs to a worker that is not heard of any more.
	Lease time.Duration // 15 s
	// Unattended bounds what a lost job costs: a run that is due for so long, with nobody at it, gets a new one. That is looked for as often.
	Unattended time.Duration // 2 s
	// Call bounds a provider call, Deliver the one that installs the agent.
	Call    time.Duration // 30 s
	Deliver time.Duration // 10 min

	// Poll and PollMax bound how long to wait before looking again at what takes its time.
	Poll    time.Duration // 1 s
	PollMax time.Duration // 15 s
	// Retry and RetryMax bound the wait after an error, with full jitter.
	Retry    time.Duration // 1 s
	RetryMax time.Duration // 30 s
	// Cleanup and CleanupMax bound the wait before trying again to clean up.
	Cleanup    time.Duration // 1 min
	CleanupMax time.Duration // 8 h
	// KeepFailed is how long what a failed run ordered is kept for a retry before it is given back.
	KeepFailed time.Duration // not at all
	// Sweep is how often each account is looked through for machines without an owner.
	Sweep time.Duration // 5 min
	// Uncertain is how often to look for an order whose outcome is unknown while a person is waited for.
	Uncertain time.Duration // 1 min
	// ListMargin is added to the time that the manifest says a provider's lists may lag: an order that a worker gave up, or
	// died over, may still be on its way for as long as a call.
	ListMargin time.Duration // 10 s more than Call
	// ClockSkew is how far a machine's clock may be off.
	ClockSkew time.Duration // 5 min
}

func (t Timing) withDefaults() Timing {
	return Timing{
		ClaimVPS:    cmp.Or(t.ClaimVPS, 10*time.Minute),
		ClaimMetal:  cmp.Or(t.ClaimMetal, time.Hour),
		Identifying: cmp.Or(t.Identifying, 10*time.Minute),
		Preparing:   cmp.Or(t.Preparing, 30*time.Minute),
		Installing:  cmp.Or(t.Installing, time.Hour),
		Installed:   cmp.Or(t.Installed, 15*time.Minute),
		Lease:       cmp.Or(t.Lease, 15*time.Second),
		Unattended:  cmp.Or(t.Unattended, 2*time.Second),
		Call:        cmp.Or(t.Call, 30*time.Second),
		Deliver:     cmp.Or(t.Deliver, 10*time.Minute),
		Poll:        cmp.Or(t.Poll, time.Second),
		PollMax:     cmp.Or(t.PollMax, 15*time.Second),
		Retry:       cmp.Or(t.Retry, time.Second),
		RetryMax:    cmp.Or(t.RetryMax, 30*time.Second),
		Cleanup:     cmp.Or(t.Cleanup, time.Minute),
		CleanupMax:  cmp.Or(t.CleanupMax, 8*time.Hour),
		KeepFailed:  t.KeepFailed,
		Sweep:       cmp.Or(t.Sweep, 5*time.Minute),
		Uncertain:   cmp.Or(t.Uncertain, time.Minute),
		ListMargin:  cmp.Or(t.ListMargin, cmp.Or(t.Call, 30*time.Second)+10*time.Second),
		ClockSkew:   cmp.Or(t.ClockSkew, 5*time.Minute),
	}
}

// claim is how long delivery may take. While the kind is not known it is the longer of the two.
func (t Timing) claim(m provider.Manifest, kind model.MachineKind) time.Duration {
	vps := max(t.ClaimVPS, m.ClaimLimit[model.VPS])
	metal := max(t.ClaimMetal, m.ClaimLimit[model.Metal])
	switch kind {
	case model.VPS:
		return vps
	case model.Metal:
		return metal
	default:
		return max(vps, metal)
	}
}

// limit is how long a run may stay in a state other than claiming; zero for the final ones.
func (t Timing) limit(s model.BootstrapStatus) time.Duration {
	switch s {
	case model.Identifying:
		return t.Identifying
	case model.Preparing:
		return t.Preparing
	case model.Installing:
		return t.Installing
	case model.Installed:
		return t.Installed
	case model.Claiming, model.Joined, model.Failed:
	}
	return 0
}
