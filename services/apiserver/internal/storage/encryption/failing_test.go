package encryption_test

import (
	"context"
	"errors"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
)

// failedRevision is the revision that Get of a failingStore returns with its error.
const failedRevision = 7

// failingStore is a store in which Get, Watch and Resume return an error. No test calls the other
// methods.
type failingStore struct {
	storage.Interface
	err error
}

// Get implements storage.Interface.
func (s failingStore) Get(context.Context, string, int64) (storage.KeyValue, int64, error) {
	return storage.KeyValue{}, failedRevision, s.err
}

// Watch implements storage.Interface.
func (s failingStore) Watch(context.Context, string, int64) (storage.Watcher, error) {
	return nil, s.err
}

// Resume implements storage.Interface.
func (s failingStore) Resume(context.Context, string, storage.Position) (storage.Watcher, error) {
	return nil, s.err
}

// TestStoreErrorsAreReturned checks that errors of the underlying store are returned unchanged.
func TestStoreErrorsAreReturned(t *testing.T) {
	below := errors.New("below")
	s := encryption.NewStore(failingStore{err: below}, encryption.NewIdentity(), builtIn(), nil)
	if _, at, err := s.Get(t.Context(), secretKey, 0); at != failedRevision || !errors.Is(err, below) {
		t.Errorf("Get: got revision %d and error %v, want %d and %v", at, err, failedRevision, below)
	}
	if w, err := s.Watch(t.Context(), "/registry/", 1); w != nil || !errors.Is(err, below) {
		t.Errorf("Watch: got %v and error %v, want no watcher and %v", w, err, below)
	}
	if w, err := s.Resume(t.Context(), "/registry/", storage.Position{}); w != nil || !errors.Is(err, below) {
		t.Errorf("Resume: got %v and error %v, want no watcher and %v", w, err, below)
	}
}
