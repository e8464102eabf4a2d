package encryption

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"binnacle/libs/filewatch"
	"binnacle/libs/serving/health"
)

const (
	// retirementDelay is how long a replaced Set remains usable for operations that started with
	// it.
	retirementDelay = 10 * time.Second
	// defaultHealthTimeout is the default time for the plugins of a new configuration to become
	// healthy.
	defaultHealthTimeout = 10 * time.Second
)

// Live holds the current Set.
type Live struct {
	file    string
	data    []byte
	builder *Builder
	log     *slog.Logger
	current atomic.Pointer[Set]
	// pendingContent is the content whose plugins are not healthy yet. Only Run uses it.
	pendingContent []byte
	// reloading is set while Run follows the file.
	reloading atomic.Bool

	mu sync.Mutex // leaf lock
	// retiring holds the replaced Sets and the timers that close them.
	retiring map[*Set]*time.Timer
	closing  bool
	// reopened receives a signal when readability may have changed.
	reopened []chan<- struct{}
}

// NewIdentity returns a Live that does not encrypt, and cannot decrypt.
func NewIdentity() *Live { return &Live{} }

// Open reads a configuration file and activates it. reload means that Run will follow the file.
func Open(ctx context.Context, file string, reload bool, b *Builder) (*Live, error) {
	c, data, err := Read(file, reload)
	if err != nil {
		return nil, err
	}
	l := &Live{file: file, data: data, builder: b, log: b.Logger, retiring: map[*Set]*time.Timer{}}
	s, err := b.Build(ctx, c, l.notifyReopened)
	if err != nil {
		return nil, err
	}
	l.current.Store(s)
	return l, nil
}

// Current returns the current Set, or nil if nothing is encrypted.
func (l *Live) Current() *Set { return l.current.Load() }

// Reloading reports whether Run follows the file.
func (l *Live) Reloading() bool { return l.reloading.Load() }

// Run follows the file until ctx ends.
func (l *Live) Run(ctx context.Context) error {
	l.reloading.Store(true)
	defer l.reloading.Store(false)
	_ = filewatch.FollowUntilApplied(ctx, l.log, l.file, l.data, l.applyContent) // it returns only the error of the context
	return nil
}

// applyContent handles new content of the file. It returns false for content whose plugins are not
// healthy: such content is retried, and logged once.
func (l *Live) applyContent(ctx context.Context, data []byte, err error) (done bool) {
	retried := err == nil && l.pendingContent != nil && bytes.Equal(data, l.pendingContent)
	if err != nil {
		err = readError(l.file, err)
	} else {
		err = l.replaceConfig(ctx, data)
	}
	if ctx.Err() != nil {
		return true
	}
	l.pendingContent = nil
	if errors.As(err, new(*unhealthyError)) {
		l.pendingContent = data
		if retried {
			return false
		}
	}
	l.builder.Metrics.recordReload(l.builder.ServerID, err)
	if err != nil {
		l.log.Error("encryption configuration is invalid; keeping the previous one", "file", l.file,
			"tried again", l.pendingContent != nil, "error",
			fmt.Errorf("error processing encryption config file %s: %w", l.file, err))
		return l.pendingContent == nil
	}
	l.log.Info("encryption configuration applied", "file", l.file)
	return true
}

// replaceConfig replaces the current configuration.
func (l *Live) replaceConfig(ctx context.Context, data []byte) error {
	c, err := Parse(l.file, data, true)
	if err != nil {
		return err
	}
	next, err := l.builder.Build(ctx, c, l.notifyReopened)
	if err != nil {
		return err
	}
	healthCtx, cancel := context.WithTimeout(ctx, cmp.Or(l.builder.HealthTimeout, defaultHealthTimeout))
	defer cancel()
	if err := next.waitHealthy(healthCtx); err != nil {
		next.Close()
		return err
	}
	if !l.swapSet(next) {
		next.Close()
		return errClosed
	}
	l.notifyReopened()
	return nil
}

// errClosed means that a configuration arrived after Close.
var errClosed = errors.New("encryption has ended")

// swapSet replaces the current Set, which is closed after its grace period. It returns false after
// Close, because nothing would close the new Set.
func (l *Live) swapSet(next *Set) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	replaced := l.current.Swap(next)
	l.retiring[replaced] = time.AfterFunc(retirementDelay, func() {
		l.mu.Lock()
		_, isRetiring := l.retiring[replaced]
		delete(l.retiring, replaced)
		l.mu.Unlock()
		if isRetiring {
			replaced.Close()
		}
	})
	return true
}

// notifyReopened notifies the holders of decrypted values.
func (l *Live) notifyReopened() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ch := range l.reopened {
		select {
		case ch <- struct{}{}:
		default: // one is pending already
		}
	}
}

// subscribeReopened returns a channel that receives a signal when existing values may have become
// readable or unreadable.
func (l *Live) subscribeReopened() <-chan struct{} {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reopened = append(l.reopened, ch)
	return ch
}

// CheckAll returns the errors of the plugins of the current Set.
func (l *Live) CheckAll(r *http.Request) error { return l.Current().checkAll(r) }

// Close closes all Sets.
func (l *Live) Close() {
	l.mu.Lock()
	l.closing = true
	old := l.retiring
	l.retiring = map[*Set]*time.Timer{}
	l.mu.Unlock()
	for s, timer := range old {
		timer.Stop()
		s.Close()
	}
	if s := l.Current(); s != nil {
		s.Close()
	}
}

// AddHealthChecks adds the health checks of KMS plugins. Each plugin has its own check if the
// configuration is not reloaded and one of the plugins has version 1. Otherwise all plugins share
// one check. The liveness of the server does not depend on them.
func (l *Live) AddHealthChecks(h *health.Registry, reloaded bool) {
	set := l.Current()
	switch {
	case set == nil:
	case reloaded:
		h.Add("kms-providers", l.CheckAll, health.Healthz, health.Readyz)
	case set.SharedHealthCheck():
		h.Add("kms-providers", l.CheckAll, health.Healthz, health.Readyz)
	default:
		for i := range set.Plugins() {
			h.Add("kms-provider-"+strconv.Itoa(i), func(r *http.Request) error {
				return set.Check(r.Context(), i)
			}, health.Healthz, health.Readyz)
		}
	}
}
