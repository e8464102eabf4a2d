package fanout

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// refusedBeats is the number of heartbeats between a rejection and the next attempt to subscribe.
const refusedBeats = 5

// subscriptions holds the subscriptions of a connection. The server does not restore a subscription
// that it rejected, or removed because permissions changed, while the connection lasts. So
// subscriptions retries it until it succeeds.
type subscriptions struct {
	wait time.Duration // between a rejection and the next attempt
	mu   sync.Mutex    // a leaf lock, except for the locks of the connection
	all  map[string]*subscription
	over bool
}

// subscription is the subscription to one subject.
type subscription struct {
	sub    *nats.Subscription
	handle nats.MsgHandler
	again  *time.Timer // set while the next attempt is pending
	tried  time.Time   // the last attempt
}

// listen subscribes to a subject. Calls of handle do not overlap, even if the subscription is
// replaced.
func (e *subscriptions) listen(conn *nats.Conn, subject string, handle nats.MsgHandler) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var one sync.Mutex
	in := &subscription{handle: func(m *nats.Msg) {
		one.Lock()
		defer one.Unlock()
		handle(m)
	}}
	var err error
	if in.sub, err = conn.Subscribe(subject, in.handle); err != nil {
		return err
	}
	if e.all == nil {
		e.all = map[string]*subscription{}
	}
	e.all[subject] = in
	return nil
}

// refused handles an error of the connection. It returns true for a repeated error: the last
// attempt for the same subscription was rejected too.
func (e *subscriptions) refused(conn *nats.Conn, err error) (known bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for subject, in := range e.all {
		if e.over || !strings.Contains(err.Error(), "Subscription to "+strconv.Quote(subject)) {
			continue
		}
		known = time.Since(in.tried) < e.wait
		if in.again == nil {
			in.again = time.AfterFunc(e.wait, func() { e.listenAgain(conn, subject) })
		}
	}
	return known
}

func (e *subscriptions) listenAgain(conn *nats.Conn, subject string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	in := e.all[subject]
	in.again, in.tried = nil, time.Now()
	_ = in.sub.Unsubscribe()                                        // the server may have removed it already
	if sub, err := conn.Subscribe(subject, in.handle); err == nil { // otherwise the connection is closed
		in.sub = sub
	}
}

func (e *subscriptions) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	for _, in := range e.all {
		if in.again != nil {
			in.again.Stop()
		}
	}
}
