// Package storagetest is the conformance suite of the storage contract. Every implementation calls
// Run from one of its tests. Users of the contract must not rely on behaviour that the suite does
// not check.
//
// Each test names one guarantee and gets its own store without other writers.
package storagetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/storage"
)

// patience bounds waits for expected events. No test waits for it to pass.
const patience = time.Minute

// Run runs the suite. open returns an empty store and closes it at the end of the given test.
func Run(t *testing.T, open func(t *testing.T) storage.Interface) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Read", readTests},
		{"List", listTests},
		{"Write", writeTests},
		{"Watch", watchTests},
		{"Compact", compactTests},
		{"Position", positionTests},
	} {
		runGroup(t, group.name, group.tests, open)
	}
}

// RunReplaced runs the additional tests for a store that can be restored from a backup while in
// use: it does not run in the process of its users.
func RunReplaced(t *testing.T, open func(t *testing.T) storage.Interface) {
	runGroup(t, "Replaced", replacedTests, open)
}

// runGroup runs each test on its own store, in a subtest of the group.
func runGroup(t *testing.T, name string, tests []test, open func(t *testing.T) storage.Interface) {
	t.Run(name, func(t *testing.T) {
		for _, testCase := range tests {
			t.Run(testCase.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				testCase.run(&suite{T: t, ctx: ctx, store: open(t)})
			})
		}
	})
}

// test is one test of the conformance suite.
type test struct {
	name string
	run  func(*suite)
}

// suite is the state of one test: the store and common helpers.
type suite struct {
	*testing.T
	ctx   context.Context
	store storage.Interface
}

// create writes a new key and returns its revision. This method and the ones below fail the test on
// an error.
func (s *suite) create(key, value string) int64 {
	s.Helper()
	rev, err := s.store.Create(s.ctx, key, []byte(value), storage.WriteOptions{})
	if err != nil {
		s.Fatalf("create %s: %v", key, err)
	}
	return rev
}

func (s *suite) update(key, value string, expected int64) int64 {
	s.Helper()
	rev, err := s.store.Update(s.ctx, key, []byte(value), expected, storage.WriteOptions{})
	if err != nil {
		s.Fatalf("update %s: %v", key, err)
	}
	return rev
}

func (s *suite) delete(key string, expected int64) int64 {
	s.Helper()
	rev, err := s.store.Delete(s.ctx, key, expected)
	if err != nil {
		s.Fatalf("delete %s: %v", key, err)
	}
	return rev
}

func (s *suite) revision() int64 {
	s.Helper()
	rev, err := s.store.Revision(s.ctx)
	if err != nil {
		s.Fatalf("revision: %v", err)
	}
	return rev
}

func (s *suite) list(prefix string, opts storage.ListOptions) storage.ListResult {
	s.Helper()
	res, err := s.store.List(s.ctx, prefix, opts)
	if err != nil {
		s.Fatalf("list %s %+v: %v", prefix, opts, err)
	}
	return res
}

// wantKeys checks the keys of a list, in order.
func (s *suite) wantKeys(res storage.ListResult, expected ...string) {
	s.Helper()
	got := []string{}
	for _, kv := range res.Items {
		got = append(got, kv.Key)
	}
	if !reflect.DeepEqual(got, append([]string{}, expected...)) {
		s.Fatalf("keys %v, want %v", got, expected)
	}
}

// wantNewest checks the value and the revision that the key is at.
func (s *suite) wantNewest(key, value string, rev int64) {
	s.Helper()
	kv, _, err := s.store.Get(s.ctx, key, 0)
	if err != nil {
		s.Fatalf("get %s: %v", key, err)
	}
	if kv.Key != key || string(kv.Value) != value || kv.ModRevision != rev {
		s.Fatalf("got %s=%q at %d, want %q at %d", kv.Key, kv.Value, kv.ModRevision, value, rev)
	}
}

// wantConflict checks that err is a *storage.ConflictError with the live value.
func (s *suite) wantConflict(err error, live storage.KeyValue) {
	s.Helper()
	var conflict *storage.ConflictError
	if !errors.As(err, &conflict) {
		s.Fatalf("error %v, want a conflict", err)
	}
	got := conflict.Live
	got.Seal = nil // the stored form is irrelevant
	if !reflect.DeepEqual(got, live) {
		s.Fatalf("conflict has live value %+v, want %+v", got, live)
	}
}

// wantFuture checks that err is a *storage.FutureError with the current revision.
func (s *suite) wantFuture(err error, current int64) {
	s.Helper()
	var future *storage.FutureError
	if !errors.As(err, &future) {
		s.Fatalf("error %v, want a future revision", err)
	}
	if future.Current != current {
		s.Fatalf("error reports newest revision %d, want %d", future.Current, current)
	}
}

// wantCompacted checks that err is a *storage.CompactedError.
func (s *suite) wantCompacted(err error) {
	s.Helper()
	var removed *storage.CompactedError
	if !errors.As(err, &removed) {
		s.Fatalf("error %v, want a compacted revision", err)
	}
}

// wantNotFound checks that err is storage.ErrNotFound.
func (s *suite) wantNotFound(err error) {
	s.Helper()
	if !errors.Is(err, storage.ErrNotFound) {
		s.Fatalf("error %v, want not found", err)
	}
}

// podKey returns the key of the nth object.
func podKey(n int) string { return fmt.Sprintf("/registry/pods/ns/p%06d", n) }
