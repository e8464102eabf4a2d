package writes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// TestDeleteCorruptKeepsObjectsThatMayBeReadable checks that an object stays if it could not be
// opened because the request was rejected or ended.
func TestDeleteCorruptKeepsObjectsThatMayBeReadable(t *testing.T) {
	base := newBase(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ctx         context.Context
		readErr     error
		wantDeleted bool
		isWanted    func(error) bool
	}{
		"damaged": {
			ctx:         t.Context(),
			readErr:     errors.New("no such key"),
			wantDeleted: true,
			isWanted:    func(err error) bool { return err == nil },
		},
		"too many waiting": {
			ctx:      t.Context(),
			readErr:  fmt.Errorf("open: %w", status.ManyWait()),
			isWanted: apierrors.IsTooManyRequests,
		},
		"deadline exceeded": {
			ctx:      t.Context(),
			readErr:  fmt.Errorf("open: %w", apierrors.NewTimeoutError("late", 0)),
			isWanted: apierrors.IsTimeout,
		},
		"client disconnected": {
			ctx:      ended,
			readErr:  context.Canceled,
			isWanted: func(err error) bool { return errors.Is(err, context.Canceled) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := base.fixture(t)
			kind := fixture.kind("configmaps")
			revision := fixture.storeDirectly(kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}})
			key := kind.Key("n", "c")
			kv := fixture.store.values[key]
			kv.Seal = &storage.Seal{Err: &storage.CorruptObjectError{Key: key, Revision: revision, Err: test.readErr}}
			fixture.store.values[key] = kv
			err := fixture.writer.DeleteCorrupt(
				test.ctx,
				&writes.Request{Resource: kind, Namespace: "n", Name: "c", User: &request.User{Name: "u"}},
			)
			if !test.isWanted(err) {
				t.Errorf("read error %v: DeleteCorrupt returned %v", test.readErr, err)
			}
			if _, exists := fixture.store.values[key]; exists == test.wantDeleted {
				t.Errorf("object exists: got %t, want %t", exists, !test.wantDeleted)
			}
		})
	}
}
