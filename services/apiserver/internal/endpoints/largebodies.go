package endpoints

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
)

const (
	// largeBody is the size in bytes from which bodies are worked on only so many
	// at a time: small ones never wait for them.
	largeBody = 64 << 10
	// largePerCPU is how many bytes of them are worked on at a time, for each CPU.
	largePerCPU = 4 << 20
	// costlyBody is how many times as much a body counts that is not read directly.
	costlyBody = 4
)

// largeBodies bound what is worked on of large bodies at a time: an object takes a
// hundred times the memory of its text, and as long as it takes others wait for a
// CPU.
type largeBodies struct {
	size int64
	*semaphore.Weighted
}

func newLargeBodies() *largeBodies {
	size := int64(runtime.GOMAXPROCS(0)) * largePerCPU
	return &largeBodies{size, semaphore.NewWeighted(size)}
}

// enter waits until a body may be worked on, and returns what ends that.
func (l *largeBodies) enter(ctx context.Context, length int, media string) (leave func(), err error) {
	if length < largeBody {
		return func() {}, nil
	}
	weight := int64(length)
	switch media {
	case api.MediaYAML, api.MediaCBOR, api.MediaApplyYAML, api.MediaApplyCBOR:
		weight *= costlyBody
	}
	weight = min(weight, l.size)
	if err := l.Acquire(ctx, weight); err != nil {
		return func() {}, apierrors.NewTooManyRequests("too many large requests are worked on, please try again later", 1)
	}
	return func() { l.Release(weight) }, nil
}
