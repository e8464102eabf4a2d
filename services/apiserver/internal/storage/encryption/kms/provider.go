package kms

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Provider encrypts and decrypts values with the keys of one plugin. A value is bound to the key
// that it is stored under.
type Provider interface {
	// Seal appends the encrypted value to dst.
	Seal(ctx context.Context, dst, value []byte, key string) ([]byte, error)
	// Open returns the value, and whether it would be encrypted differently today.
	Open(ctx context.Context, sealed []byte, key string) (value []byte, stale bool, err error)
	// Check returns an error if the plugin is unhealthy. It may use a recent result.
	Check(ctx context.Context) error
	// Run reads the status of the plugin periodically until ctx ends.
	Run(ctx context.Context)
	// Close closes the connection.
	Close()
}

// responsiveness tracks whether the plugin responds.
type responsiveness struct {
	failing atomic.Bool // the last call got no response
	// stuck means that a decryption timed out, although calls for the status may succeed.
	stuck     atomic.Bool
	recovered func()
	// wait calls a function that waits for the plugin, without the limits of the request.
	wait func(context.Context, func(context.Context) error) error
}

// isUnresponsive reports whether impatient callers should not call the plugin.
func (r *responsiveness) isUnresponsive() bool { return r.failing.Load() || r.stuck.Load() }

// recordDecryption records the result of decrypting a key. A success after failures may allow
// retries of the failed keys.
func (r *responsiveness) recordDecryption(err error) {
	if err == nil {
		if r.stuck.Swap(false) {
			r.recovered()
		}
	} else if isTimeout(err) {
		r.stuck.Store(true) // an error is a response, and does not concern other keys
	}
}

// isTimeout reports whether a call ended without a response.
func isTimeout(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// awaitCall waits for a running call, at most impatientTimeout if ctx is impatient. A later result is kept.
func (r *responsiveness) awaitCall(ctx context.Context, done <-chan struct{}) error {
	if isImpatient(ctx) {
		timer := time.NewTimer(impatientTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			r.stuck.Store(true)
			return &UnavailableError{errors.New("the plugin takes too long")}
		case <-done:
			return nil
		case <-ctx.Done():
			return &UnavailableError{ctx.Err()}
		}
	}
	return r.wait(ctx, func(ctx context.Context) error {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return &UnavailableError{ctx.Err()}
		}
	})
}

// recordResult records the result of a call. A missing or invalid key is treated as permanent. A
// key that may not be used now is often usable soon.
func (r *responsiveness) recordResult(err error) error {
	switch status.Code(err) {
	case codes.OK:
		if r.failing.Swap(false) {
			r.recovered()
		}
		return nil
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		return err
	}
	if isTimeout(err) {
		r.failing.Store(true)
	}
	return &UnavailableError{err}
}

// healthCache holds the last known health of a plugin, and when it was checked.
type healthCache struct {
	mu        sync.Mutex // held during the call: one caller checks, the other callers wait
	checkedAt time.Time
	err       error
}

// sectionError names the failed call of a check. It is reported when the check runs. The cached
// result is only the plugin's error, as in Kubernetes.
type sectionError struct {
	section, plugin string
	err             error
}

func (e *sectionError) Error() string {
	return fmt.Sprintf("failed to perform %s section of the healthz check for KMS Provider %s, error: %s",
		e.section, e.plugin, e.err)
}

func (e *sectionError) Unwrap() error { return e.err }

// checkCached calls the plugin unless a recent result is available.
func (h *healthCache) checkCached(ctx context.Context, intervals Intervals, readStatus func(context.Context) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	retained := intervals.HealthyTTL
	if h.err != nil {
		retained = intervals.UnhealthyTTL
	}
	if !h.checkedAt.IsZero() && time.Since(h.checkedAt) < retained {
		return h.err
	}
	return h.readStatus(ctx, readStatus)
}

// callNow calls the plugin unconditionally.
func (h *healthCache) callNow(ctx context.Context, readStatus func(context.Context) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readStatus(ctx, readStatus)
}

// readStatus calls the plugin and records the result. The caller holds mu.
func (h *healthCache) readStatus(ctx context.Context, readStatus func(context.Context) error) error {
	err := readStatus(ctx)
	h.checkedAt = time.Now()
	h.err = err
	if section := new(sectionError); errors.As(err, &section) {
		h.err = section.err
	}
	return err
}

// pollStatus polls readStatus until ctx ends. The interval depends on whether the last call
// succeeded.
func pollStatus(ctx context.Context, intervals Intervals, lastErr error, readStatus func(context.Context) error) {
	for err := lastErr; ; {
		wait := intervals.HealthyInterval
		if err != nil {
			wait = intervals.UnhealthyInterval
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err = readStatus(ctx)
	}
}
