package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"binnacle/services/apiserver/internal/request"
)

// errNoRoom reports that there was no memory for a body in time, or that a stalled body lost its
// memory to another one. errManyStalled reports that too many requests wait for their bodies.
var (
	errNoRoom      = errors.New("no memory for the body")
	errManyStalled = errors.New("too many requests wait for their bodies")
)

const (
	// stalledAfter is the time in which a body has to fill the memory that it reserved last.
	// After that, the body is refused if another one waits for memory.
	stalledAfter = 500 * time.Millisecond
	// pressEvery is the interval at which a body that waits for memory looks for stalled bodies.
	pressEvery = 250 * time.Millisecond
)

// reservedBody holds the memory of the body of one request.
type reservedBody struct {
	room *bodies
	ctx  context.Context
	user client
	// arriving ends when the body is refused.
	arriving context.Context
	refuse   context.CancelCauseFunc

	mu     sync.Mutex // the response may end while the body arrives
	over   bool
	size   int
	leaves []func()

	// The mutex of the room guards these fields.
	occupied int       // size
	since    time.Time // of the last reservation
	refused  bool
}

// receive reads the body. The request holds no seats while it waits for the body.
// It returns an error if there is no memory in time, if the body is stalled while another one
// waits for memory, if too many bodies are stalled, or at the end of the request, which the
// handler reports.
func (b *reservedBody) receive(w http.ResponseWriter, r *http.Request) (body []byte, err error) {
	b.arriving, b.refuse = context.WithCancelCause(b.ctx)
	defer b.refuse(nil)
	b.room.arrives(b)
	defer b.room.arrived(b)
	err = request.Wait(b.arriving, errManyStalled, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() {
			if cause := context.Cause(ctx); errors.Is(cause, errManyStalled) || errors.Is(cause, errNoRoom) {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now())
			}
		})
		defer stop()
		if body, err = request.ReceiveBody(r, b.reserve); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return b.reserve(len(body))
	})
	return body, err
}

// reserve waits until the body may occupy size bytes.
func (b *reservedBody) reserve(size int) error {
	size = max(size, leastBody)
	if size <= b.size {
		return nil
	}
	leave, ok := b.room.enterPressing(b.arriving, b.user, size-b.size, func() { b.room.press(b, size-b.size) })
	if !ok && b.ctx.Err() != nil {
		return b.ctx.Err()
	}
	if !ok {
		return errNoRoom
	}
	b.mu.Lock()
	over := b.over
	if !over {
		b.leaves, b.size = append(b.leaves, leave), size
	}
	b.mu.Unlock()
	if over {
		leave()
		return errNoRoom
	}
	b.room.occupies(b, size)
	return nil
}

func (b *reservedBody) leave() {
	b.mu.Lock()
	leaves := b.leaves
	b.leaves, b.over = nil, true
	b.mu.Unlock()
	for _, leave := range leaves {
		leave()
	}
}

// arrives adds a body to those that arrive; arrived removes it.
func (b *bodies) arrives(r *reservedBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.since = time.Now()
	b.arriving = append(b.arriving, r)
}

func (b *bodies) arrived(r *reservedBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arriving = slices.DeleteFunc(b.arriving, func(o *reservedBody) bool { return o == r })
}

func (b *bodies) occupies(r *reservedBody, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.occupied, r.since = size, time.Now()
}

// press refuses stalled bodies until r can reserve size more bytes. It takes the bodies of principals
// that hold more than the principal of r would, the largest holder first, and younger bodies of the
// same principal. So the oldest body of a principal always completes.
func (b *bodies) press(r *reservedBody, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lacking, held := b.room.lacking(r.user, size)
	mine := held[r.user.principal]
	for _, o := range b.arriving {
		if o.refused {
			lacking -= o.occupied
			held[o.user.principal] -= o.occupied
		}
	}
	for now := time.Now(); lacking > 0; {
		var worst *reservedBody
		later := false // than r
		for _, o := range b.arriving {
			later = later || o == r
			if o == r || o.refused || o.occupied == 0 || now.Sub(o.since) < stalledAfter {
				continue
			}
			own := o.user.principal == r.user.principal
			if own && !later || !own && held[o.user.principal] <= mine+size {
				continue
			}
			if worst == nil || held[o.user.principal] > held[worst.user.principal] {
				worst = o
			}
		}
		if worst == nil {
			return
		}
		worst.refused = true
		worst.refuse(errNoRoom)
		lacking -= worst.occupied
		held[worst.user.principal] -= worst.occupied
	}
}
