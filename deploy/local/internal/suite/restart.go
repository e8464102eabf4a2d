package suite

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"binnacle/deploy/certs"
)

// A replicated suite is meant for failure tests: a process that exits is restarted, after a delay
// that doubles with each exit until the process has run for a while.
const (
	maxRestartDelay = 30 * time.Second
	stableAfter     = time.Minute
	// maxQuorumInterval bounds the interval of quorum checks of etcd.
	maxQuorumInterval = time.Second
)

// restarts tracks exited processes. The goroutine of Up owns it.
type restarts struct {
	firstDelay   time.Duration
	exits        map[string]int         // consecutive exits, by instance
	timers       map[string]*time.Timer // of waiting instances
	dueInstances chan instance          // has capacity for all instances
}

func newRestarts(instances int, firstDelay time.Duration) *restarts {
	return &restarts{
		firstDelay:   firstDelay,
		exits:        map[string]int{},
		timers:       map[string]*time.Timer{},
		dueInstances: make(chan instance, instances),
	}
}

// delayFor returns the restart delay of an instance that has just exited.
func (rs *restarts) delayFor(p *process) (wait time.Duration, attempt int) {
	if time.Since(p.begin) >= stableAfter {
		rs.exits[p.name] = 0
	}
	rs.exits[p.name]++
	attempt = rs.exits[p.name]
	wait = maxRestartDelay
	if shift := attempt - 1; shift < 5 {
		wait = min(maxRestartDelay, rs.firstDelay<<shift)
	}
	return wait, attempt
}

// schedule makes an instance due after a delay.
func (rs *restarts) schedule(i instance, wait time.Duration) {
	if old := rs.timers[i.name]; old != nil {
		old.Stop()
	}
	rs.timers[i.name] = time.AfterFunc(wait, func() {
		select {
		case rs.dueInstances <- i:
		default: // it is due already
		}
	})
}

func (rs *restarts) stopTimers() {
	for _, t := range rs.timers {
		t.Stop()
	}
}

// handleExit handles the unexpected exit of a process. It ends a suite with one instance of each.
// In a replicated suite it schedules a restart.
func (r *run) handleExit(p *process) error {
	if !r.config.HA {
		return r.exitError(p)
	}
	wait, attempt := r.restarts.delayFor(p)
	r.logExit(p)
	r.out.printf("restarting %s in %s (attempt %d); other services keep running", p.name, wait, attempt)
	r.restarts.schedule(p.instance, wait)
	return nil
}

// restartInstance restarts an exited instance, unless it runs again already.
func (r *run) restartInstance(inst instance) {
	for attempt, g := range r.groups {
		for k, old := range g {
			if old.name != inst.name {
				continue
			}
			select {
			case <-old.done:
			default:
				return
			}
			p, err := r.startAgain(inst)
			if err != nil {
				r.out.printf("cannot start %s: %v; next attempt in %s", inst.name, err, maxRestartDelay)
				r.restarts.schedule(inst, maxRestartDelay)
				return
			}
			r.groups[attempt][k] = p
			// Its exit is reported elsewhere.
			r.backgroundChecks.Go(func() { _ = r.waitForRestarted(p.contextUntilExit(r.ended), p) })
			return
		}
	}
}

// logExit logs an exited process with its last lines.
func (r *run) logExit(exited *process) {
	last := exited.output.flushPartial()
	r.out.printf("%s", strings.Repeat("!", 60))
	r.out.printf("%s exited (%s); its last lines:", exited.name, exited.exitStatus())
	for _, line := range last {
		r.out.printf("    %s", line)
	}
	r.out.printf("%s", strings.Repeat("!", 60))
}

// watchQuorum reports when no member of etcd has responded for QuorumPatience, until ctx ends.
func (r *run) watchQuorum(ctx context.Context, members []instance) {
	tick := time.NewTicker(min(maxQuorumInterval, r.config.QuorumPatience/4))
	defer tick.Stop()
	last, said := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		missing := time.Since(last)
		switch {
		case r.anyReady(ctx, members):
			if said {
				r.out.printf("etcd has a quorum again")
			}
			last, said = time.Now(), false
		case ctx.Err() != nil:
			return
		case missing >= r.config.QuorumPatience:
			r.fatal <- fmt.Errorf("etcd has had no quorum for %s", missing.Round(time.Second))
			return
		case !said:
			r.out.printf("etcd has no quorum: writes wait; all services stop in %s unless it returns", r.config.QuorumPatience)
			said = true
		}
	}
}

func (r *run) anyReady(ctx context.Context, members []instance) bool {
	for _, m := range members {
		if ready, _ := r.prober.checkReady(ctx, m); ready {
			return true
		}
	}
	return false
}

// renewCertificates replaces the certificates that expire soon. Services and etcd read new files
// themselves. NATS reads them when it reloads its configuration.
func (r *run) renewCertificates() {
	renewed, err := certs.Ensure(certs.Options{Dir: r.paths.certs().Dir})
	if err != nil {
		r.out.printf("certificates cannot be renewed: %v", err)
	}
	if len(renewed) == 0 {
		return
	}
	r.out.printf("renewed %d certificates and keys", len(renewed))
	if err := r.prober.reload(); err != nil {
		r.out.printf("the renewed certificates cannot be read: %v", err)
	}
	for _, g := range r.groups {
		for _, p := range g {
			if p.program == natsProgram {
				// This fails only if the process has ended.
				_ = p.cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	}
}
