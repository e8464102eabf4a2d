package endpoints

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
)

func TestLargeBodiesWaitForEachOther(t *testing.T) {
	l := newLargeBodies()
	enter := func(length int, media string) (func(), error) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // whoever would wait is refused
		return l.enter(ctx, length, media)
	}
	var leave []func()
	for range int(l.size) / (3 << 20) {
		done, err := l.enter(t.Context(), 3<<20, api.MediaJSON)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, done)
	}
	if _, err := enter(3<<20, api.MediaJSON); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more: %v", err)
	}
	if _, err := enter(1<<20, api.MediaYAML); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one of YAML: %v", err)
	}
	if _, err := enter(largeBody-1, api.MediaYAML); err != nil {
		t.Errorf("a small one: %v", err)
	}
	for _, done := range leave {
		done()
	}
	if done, err := l.enter(t.Context(), 3<<20, api.MediaApplyYAML); err != nil {
		t.Errorf("when the others are done: %v", err)
	} else {
		done()
	}
}
