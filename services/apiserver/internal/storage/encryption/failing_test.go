package encryption_test

import (
	"context"
	"errors"
	"testing"

	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
)

// failing is a store whose methods return an error.
type failing struct {
	storage.Interface
	why error
}

func (f failing) Get(context.Context, string, int64) (storage.KeyValue, int64, error) {
	return storage.KeyValue{}, 7, f.why
}

func (f failing) Watch(context.Context, string, int64) (storage.Watcher, error) { return nil, f.why }

func (f failing) Resume(context.Context, string, storage.Position) (storage.Watcher, error) {
	return nil, f.why
}

// TestStoreErrorsAreReturned checks that errors of the underlying store are returned unchanged.
func TestStoreErrorsAreReturned(t *testing.T) {
	below := errors.New("below")
	s := encryption.NewStore(failing{why: below}, encryption.Plain(), builtIn(), nil)
	if _, at, err := s.Get(t.Context(), secretKey, 0); at != 7 || !errors.Is(err, below) {
		t.Errorf("Get: got revision %d, %v", at, err)
	}
	if w, err := s.Watch(t.Context(), "/registry/", 1); w != nil || !errors.Is(err, below) {
		t.Errorf("Watch: got %v, %v", w, err)
	}
	if w, err := s.Resume(t.Context(), "/registry/", storage.Position{}); w != nil || !errors.Is(err, below) {
		t.Errorf("Resume: got %v, %v", w, err)
	}
}
