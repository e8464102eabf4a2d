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

// TestDeleteUnreadableKeepsObjectsThatMayBeReadable checks that an object stays if it could not be
// opened because the request was rejected or ended.
func TestDeleteUnreadableKeepsObjectsThatMayBeReadable(t *testing.T) {
	b := newBase(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		ctx     context.Context
		err     error
		deleted bool
		is      func(error) bool
	}{
		"damaged": {
			ctx:     t.Context(),
			err:     errors.New("no such key"),
			deleted: true,
			is:      func(err error) bool { return err == nil },
		},
		"too many waiting": {
			ctx: t.Context(),
			err: fmt.Errorf("open: %w", status.ManyWait()),
			is:  apierrors.IsTooManyRequests,
		},
		"deadline exceeded": {
			ctx: t.Context(),
			err: fmt.Errorf("open: %w", apierrors.NewTimeoutError("late", 0)),
			is:  apierrors.IsTimeout,
		},
		"client disconnected": {
			ctx: ended,
			err: context.Canceled,
			is:  func(err error) bool { return errors.Is(err, context.Canceled) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := b.fixture(t)
			k := w.kind("configmaps")
			rev := w.storeDirectly(k, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}})
			key := k.Key("n", "c")
			kv := w.store.values[key]
			kv.Seal = &storage.Seal{Err: &storage.CorruptObjectError{Key: key, Revision: rev, Err: c.err}}
			w.store.values[key] = kv
			err := w.writer.DeleteUnreadable(c.ctx, &writes.Request{Resource: k, Namespace: "n", Name: "c", User: &request.User{Name: "u"}})
			if !c.is(err) {
				t.Errorf("got error %v", err)
			}
			if _, kept := w.store.values[key]; kept == c.deleted {
				t.Errorf("object kept: got %t, want %t", kept, !c.deleted)
			}
		})
	}
}
