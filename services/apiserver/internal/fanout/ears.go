package fanout

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// refusedBeats is how many heartbeats after a refusal a subscription is requested again.
const refusedBeats = 5

// ears are the subscriptions of a connection. One that the server refuses, or takes away
// because permissions changed, does not come back when it is allowed again, as long as
// the connection lasts. So it is asked for again and again.
type ears struct {
	wait time.Duration // between a refusal and the next attempt
	mu   sync.Mutex    // a leaf, but for the connection's own
	all  map[string]*ear
	over bool
}

// ear is the subscription to one subject.
type ear struct {
	sub    *nats.Subscription
	handle nats.MsgHandler
	again  *time.Timer // set while the next attempt is due
	tried  time.Time   // the last one
}

// listen subscribes. handle is called one at a time, whatever happens to the subscription.
func (e *ears) listen(conn *nats.Conn, subject string, handle nats.MsgHandler) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var one sync.Mutex
	in := &ear{handle: func(m *nats.Msg) {
		one.Lock()
		defer one.Unlock()
		handle(m)
	}}
	var err error
	if in.sub, err = conn.Subscribe(subject, in.handle); err != nil {
		return err
	}
	if e.all == nil {
		e.all = map[string]*ear{}
	}
	e.all[subject] = in
	return nil
}

// refused takes an error of the connection. It is true for one that is known already:
// the same subscription was refused the last time that it was tried.
func (e *ears) refused(conn *nats.Conn, err error) (known bool) {
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

func (e *ears) listenAgain(conn *nats.Conn, subject string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	in := e.all[subject]
	in.again, in.tried = nil, time.Now()
	_ = in.sub.Unsubscribe()                                        // the server may have forgotten it
	if sub, err := conn.Subscribe(subject, in.handle); err == nil { // else the connection is closed
		in.sub = sub
	}
}

func (e *ears) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	for _, in := range e.all {
		if in.again != nil {
			in.again.Stop()
		}
	}
}
