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

// Provider seals and opens values with the keys of one plugin. Values are bound to
// the key that they are stored by.
type Provider interface {
	// Seal appends the sealed value to dst.
	Seal(ctx context.Context, dst, value []byte, key string) ([]byte, error)
	// Open tells beside the value whether it would be sealed otherwise today.
	Open(ctx context.Context, sealed []byte, key string) (value []byte, stale bool, err error)
	// Check tells whether the plugin is well; what was found of late counts.
	Check(ctx context.Context) error
	// Run asks the plugin for its status until ctx ends.
	Run(ctx context.Context)
	// Close ends the connection.
	Close()
}

// reached is whether the plugin answers at all.
type reached struct {
	failing atomic.Bool // it did not answer last
	// stuck: a key was not decrypted in time, whatever the plugin says of itself.
	stuck     atomic.Bool
	recovered func()
	// wait is Config.Wait.
	wait func(context.Context, func(context.Context) error) error
}

// silent tells whether those who must not wait should not ask.
func (r *reached) silent() bool { return r.failing.Load() || r.stuck.Load() }

// decrypted looks at how the decryption of a key ended. One that succeeds after others
// had not may do for them too.
func (r *reached) decrypted(err error) {
	if err == nil {
		if r.stuck.Swap(false) {
			r.recovered()
		}
	} else if silence(err) {
		r.stuck.Store(true) // an error is an answer, and says nothing of other keys
	}
}

// silence tells whether a call ended without an answer.
func silence(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}

// await waits for a call that runs, for a while if ctx is of somebody impatient. What it
// comes to later is kept.
func (r *reached) await(ctx context.Context, done <-chan struct{}) error {
	if isImpatient(ctx) {
		timer := time.NewTimer(patience)
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

// answered looks at how a call ended. That there is no such key, or that it cannot be one,
// stays so as far as anybody knows; that it may not be used now is often over soon.
func (r *reached) answered(err error) error {
	switch status.Code(err) {
	case codes.OK:
		if r.failing.Swap(false) {
			r.recovered()
		}
		return nil
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		return err
	}
	if silence(err) {
		r.failing.Store(true)
	}
	return &UnavailableError{err}
}

// health is what was found of a plugin, and when.
type health struct {
	mu    sync.Mutex // held while the plugin is asked: one asks, the others wait
	asked time.Time
	err   error
}

// sectionError names the call of a check that failed. It is reported when the check runs. The answer that
// is kept is the plugin's error alone, as in Kubernetes.
type sectionError struct {
	section, plugin string
	err             error
}

func (e *sectionError) Error() string {
	return fmt.Sprintf("failed to perform %s section of the healthz check for KMS Provider %s, error: %s", e.section, e.plugin, e.err)
}

func (e *sectionError) Unwrap() error { return e.err }

// check asks, unless that was done of late.
func (h *health) check(ctx context.Context, pace Pace, ask func(context.Context) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := pace.WellKept
	if h.err != nil {
		kept = pace.IllKept
	}
	if !h.asked.IsZero() && time.Since(h.asked) < kept {
		return h.err
	}
	return h.ask(ctx, ask)
}

// now asks anyhow.
func (h *health) now(ctx context.Context, ask func(context.Context) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ask(ctx, ask)
}

func (h *health) ask(ctx context.Context, ask func(context.Context) error) error {
	err := ask(ctx)
	h.asked, h.err = time.Now(), err
	if section := new(sectionError); errors.As(err, &section) {
		h.err = section.err
	}
	return err
}

// every asks at the pace of how it went last, until ctx ends.
func every(ctx context.Context, pace Pace, first error, ask func(context.Context) error) {
	for err := first; ; {
		wait := pace.Well
		if err != nil {
			wait = pace.Ill
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		err = ask(ctx)
	}
}
