package aggregation

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/kinds/apiregistration"
)

const (
	// checkInterval is the interval between checks of an available server.
	checkInterval = 30 * time.Second
	// firstRetryDelay is the delay before an unavailable server is checked again. The delay doubles
	// with each failed check, up to checkInterval.
	firstRetryDelay = time.Second
	// scheduleInterval is how often Run looks for due checks without being triggered.
	scheduleInterval = 250 * time.Millisecond
)

// CheckAll schedules a check of each extension server.
func (a *Aggregator) CheckAll() {
	for _, r := range a.currentDirectory().remotes {
		r.scheduleCheck()
	}
	a.TriggerChecks()
}

// ServiceChanged schedules checks of the extension servers behind a service. The caller calls it
// when the service or its endpoints change.
func (a *Aggregator) ServiceChanged(namespace, name string) {
	remotes := a.currentDirectory().byService[serviceName{namespace: namespace, name: name}]
	for _, r := range remotes {
		r.scheduleCheck()
	}
	if len(remotes) > 0 {
		a.TriggerChecks()
	}
}

// TriggerChecks makes Run look for due checks immediately.
func (a *Aggregator) TriggerChecks() {
	select {
	case a.trigger <- struct{}{}:
	default: // already triggered
	}
}

// Run checks extension servers until ctx is canceled. Then it closes the connections to them. It
// always returns nil.
func (a *Aggregator) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer a.closeAll() // runs last, when no goroutine uses the connections
	defer a.background.Wait()
	defer running.Wait()
	defer a.cancelWork()
	var writingLocal atomic.Bool
	checkSlots := make(chan struct{}, a.MaxChecks)
	ticker := time.NewTicker(scheduleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.trigger:
		case <-ticker.C:
		}
		started := time.Now()
		loaded := a.Store.Ready()

		// 1. Write the conditions of APIServices without a service, one batch at a time.
		names := a.currentDirectory().localToWrite
		switch {
		case len(names) == 0:
			a.localStarted.Store(loaded || a.localStarted.Load())
		case writingLocal.CompareAndSwap(false, true):
			running.Go(func() {
				defer writingLocal.Store(false)
				a.writeLocalConditions(ctx, names)
				a.localStarted.Store(true)
			})
		}

		// 2. Start the checks that are due. They wait for a slot in the background.
		for gv, remote := range a.currentDirectory().remotes {
			if a.Local(gv) || !remote.startCheckIfDue(a.Now()) {
				continue
			}
			running.Go(func() {
				select {
				case checkSlots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				defer func() { <-checkSlots }()
				remote.checkAndReport(ctx)
			})
		}

		// 3. Report progress, then pause so that frequent triggers do not occupy a core.
		a.Metrics.setUnavailable(a.currentDirectory())
		a.remoteStarted.Store(loaded || a.remoteStarted.Load())
		task.Throttle(ctx, started)
	}
}

// LocalStarted reports whether Run has tried to write the condition of every APIService without a
// service that existed at its start.
func (a *Aggregator) LocalStarted() bool { return a.localStarted.Load() }

// RemoteStarted reports whether Run has started the checks of all extension servers that
// APIServices named at its start. Their responses may still be missing.
func (a *Aggregator) RemoteStarted() bool { return a.remoteStarted.Load() }

// writeLocalConditions sets the condition Available of the named APIServices, which have no
// service. It pauses after each failure, so that Run does not retry immediately.
func (a *Aggregator) writeLocalConditions(ctx context.Context, names []string) {
	for _, name := range names {
		err := a.Write(ctx, name, apiregistration.LocalAvailable())
		if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) {
			continue
		}
		a.Logger.Warn("failed to update the condition of an APIService", "apiservice", name, "error", err)
		select {
		case <-time.After(firstRetryDelay):
		case <-ctx.Done():
		}
	}
}

// closeAll closes the connections to all extension servers.
func (a *Aggregator) closeAll() {
	for _, r := range a.current.Load().remotes {
		r.close()
	}
}
