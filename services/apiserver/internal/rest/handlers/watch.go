package handlers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/limit"
	"binnacle/libs/serving/exchange"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// watch serves GET with the watch parameter (specification: "Watch resource-version semantics" and
// "Streaming initial state").
func (a *API) watch(c *Call) error {
	f, err := a.ForStream(c.R, c.resource)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.Op, c.Coder, true, a.WatchList, a.NoCache)
	if err == nil {
		err = o.fits(c.Op.Name)
	}
	if err == nil {
		err = f.Refused()
	}
	if err != nil {
		return err
	}
	release, err := a.selectors.keep(c.Context(), o.LabelSelector, o.FieldSelector)
	if err != nil {
		return err
	}
	defer exchange.AtEnd(c.W, func(any) { release() })
	opts, err := a.watchOptions(c, o)
	if err == nil {
		err = there(c.Store)
	}
	var expired *watchcache.ExpiredError
	if err != nil && !errors.As(err, &expired) {
		return err
	}
	ctx := newLifetime(c.Context(), a.Stopping, c.Life, a.watchTimeout(o))
	defer exchange.AtEnd(c.W, func(any) { ctx.release() })
	s := &stream{api: a, form: f, call: c, fields: o.served, sent: a.Metrics.of(c.Kind), bookmarks: o.AllowWatchBookmarks, initialEnd: o.SendInitialEvents != nil && *o.SendInitialEvents}
	opts.Lost, s.initial = s.cut, opts.Initial == watchcache.InitialState
	if s.initial {
		s.scan = a.ScanLimiter(ctx)
		opts.Pause = s.scan.Pause
	}
	start := func() (*watchcache.Watcher, error) {
		if err != nil {
			return nil, err
		}
		defer s.scan.End()
		return c.follow(o, opts)
	}
	if IsWebSocket(c.R) {
		s.serveSocket(ctx, start)
		return nil
	}
	w, err := start()
	if errors.As(err, &expired) {
		// The stream reports that the version is too old.
		s.open()
		s.fail(status.ExpiredVersion(expired.Revision, expired.Oldest))
		return nil
	}
	if err != nil {
		return err
	}
	defer exchange.AtEnd(c.W, func(any) {
		s.stopBookmarks()
		w.Close()
	})
	s.begin(ctx)
	// The query is no longer needed, and the watch may last long.
	c.Op.Query = nil
	if !exchange.Detach(c.W, func(end func(failure any)) { s.pump(ctx, w, end) }) {
		s.run(ctx, w)
	}
	return nil
}

// follow starts a watcher of the served kind.
func (c *Call) follow(o *listOptions, opts watchcache.WatchOptions) (*watchcache.Watcher, error) {
	w, err := c.Store.Watch(opts)
	if errors.Is(err, watchcache.ErrStopped) && c.Custom() {
		return nil, apiset.ErrChanged // another store replaces it
	}
	if err != nil {
		return nil, err
	}
	if err := c.selects(o, w.Variant()); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// watchOptions converts the parameters to the start of a watcher.
func (a *API) watchOptions(c *Call, o *listOptions) (watchcache.WatchOptions, error) {
	opts := watchcache.WatchOptions{Selection: selectionOf(c, o), After: o.revision}
	initial := o.revision <= 0
	if o.SendInitialEvents != nil {
		initial = *o.SendInitialEvents
		if err := c.reach(c.Context(), o.revision); err != nil {
			return opts, err
		}
	} else if o.revision < 0 {
		if err := c.reach(c.Context(), -1); err != nil {
			return opts, err
		}
	}
	if initial {
		if err := a.usable(c, o, c.Store.Snapshot(), "", nil); err != nil {
			return opts, err
		}
		opts.Initial = watchcache.InitialState
	} else if o.revision <= 0 {
		opts.After = c.Store.Revision()
	} else if err := a.ofThisHistory(c, o.revision); err != nil {
		return opts, err
	}
	return opts, nil
}

// ofThisHistory rejects a start revision beyond the current one if the revision of the store went
// backwards while this server ran: the revision belongs to the previous history. Otherwise the
// watch waits for a future revision, as in Kubernetes.
func (a *API) ofThisHistory(c *Call, revision int64) error {
	if c.Store.Era() == 0 || revision <= c.Store.Revision() {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), cacheWait)
	defer cancel()
	back := request.Suspend(ctx)
	newest, err := c.Store.MostRecent(ctx)
	if back(); err != nil {
		return errBehind(ctx, err)
	}
	if newest < revision {
		return &watchcache.ExpiredError{Revision: revision, Oldest: newest}
	}
	return nil
}

// watchTimeout returns the timeout of a watch. It is the client's; a negative one ends the watch
// immediately. Without one it is random, between one and two times MinRequestTimeout, so that
// watches do not end together.
func (a *API) watchTimeout(o *listOptions) time.Duration {
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds != 0 {
		return time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return time.Duration(float64(a.MinRequestTimeout) * (1 + rand.Float64()))
}

// serveSocket runs a watch over WebSocket. start opens the watcher; the stream reports its error.
// As in Kubernetes, the client must send an Origin header, and any origin is accepted: clients
// authenticate by certificate or token, so a foreign page gains nothing.
func (s *stream) serveSocket(ctx context.Context, start func() (*watchcache.Watcher, error)) {
	websocket.Handler(func(conn *websocket.Conn) {
		defer conn.Close()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s.socket = &socket{conn: conn, binary: s.form.Binary(), header: s.form.FrameHeader()}
		w, err := start()
		if errors.Is(err, apiset.ErrChanged) {
			err = status.Reloading()
		}
		if err != nil {
			s.end(ctx, err)
			return
		}
		defer w.Close()
		defer s.stopBookmarks()
		s.begin(ctx)
		gone := make(chan struct{})
		go func() { // the client sends nothing; the read ends when it disconnects
			defer close(gone)
			_, _ = io.Copy(io.Discard, conn)
			cancel()
		}()
		s.run(ctx, w)
		_ = conn.Close()
		<-gone
	}).ServeHTTP(s.call.W, s.call.R)
}

const (
	// binaryProtocol is the subprotocol that sends the bytes of a stream in binary messages.
	binaryProtocol = "binary.k8s.io"
	// base64Protocol is the subprotocol that sends the bytes of a stream in text messages, in base64.
	base64Protocol = "base64.binary.k8s.io"
	// closeWait bounds the time for the closing frame of a connection that the client has left.
	closeWait = time.Second
)

// IsWebSocket reports whether the request asks for an upgrade to WebSocket.
func IsWebSocket(r *http.Request) bool {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	return slices.ContainsFunc(r.Header.Values("Connection"), func(v string) bool {
		return strings.Contains(strings.ToLower(v), "upgrade")
	})
}

// socket writes a watch into WebSocket messages, one per event.
type socket struct {
	conn   *websocket.Conn
	binary bool
	header int // length in bytes of an event's length header, which messages do not need
}

func (s *socket) write(event []byte) error {
	if s.binary {
		return websocket.Message.Send(s.conn, event[s.header:])
	}
	return websocket.Message.Send(s.conn, string(event))
}

// SendOverWebSocket upgrades the request and sends the data of from in WebSocket messages, after an
// empty one that shows that the stream has begun. The subprotocol decides between binary messages
// and base64 in text messages. SendOverWebSocket returns when from ends, or when the client
// disconnects, and closes from.
func SendOverWebSocket(w http.ResponseWriter, r *http.Request, from io.ReadCloser) {
	websocket.Server{
		Handshake: chooseProtocol,
		Handler: func(conn *websocket.Conn) {
			gone := make(chan struct{})
			go func() { // the client's data is discarded; the read ends when it disconnects
				defer close(gone)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.SetWriteDeadline(time.Now().Add(closeWait))
				_ = from.Close()
			}()
			m := &messages{conn: conn, encode: slices.Contains(conn.Config().Protocol, base64Protocol)}
			if _, err := m.Write(nil); err == nil {
				_, _ = io.Copy(m, from) // the response has begun: an error can only end it
			}
			_ = conn.Close()
			<-gone
		},
	}.ServeHTTP(w, r)
}

// chooseProtocol selects the first subprotocol of the client that the server supports. A client may
// also request none.
func chooseProtocol(c *websocket.Config, _ *http.Request) error {
	if len(c.Protocol) == 0 {
		return nil
	}
	i := slices.IndexFunc(c.Protocol, func(p string) bool { return p == binaryProtocol || p == base64Protocol })
	if i < 0 {
		return fmt.Errorf("unsupported subprotocols %q, use %s or %s", c.Protocol, binaryProtocol, base64Protocol)
	}
	c.Protocol = c.Protocol[i : i+1]
	return nil
}

// messages sends each write as one WebSocket message.
type messages struct {
	conn   *websocket.Conn
	encode bool // in base64
}

func (m *messages) Write(b []byte) (int, error) {
	var err error
	if m.encode {
		err = websocket.Message.Send(m.conn, base64.StdEncoding.EncodeToString(b))
	} else {
		err = websocket.Message.Send(m.conn, b)
	}
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

const (
	// selectorBytes bounds the memory in bytes of the large selectors of all watches.
	selectorBytes = 64 << 20
	// smallSelectors is the memory in bytes below which selectors are not limited. A watch takes about as
	// much without them.
	smallSelectors = 16 << 10
	// requirementBytes is the memory of a requirement, and selectorFactor that of its values per byte of
	// text.
	requirementBytes = 256
	selectorFactor   = 10
)

// selectorLimit limits the memory of the selectors of watches.
type selectorLimit struct{ bytes *limit.Queue[string] }

func newSelectorLimit() selectorLimit {
	return selectorLimit{limit.New[string](limit.Options{Size: selectorBytes, Share: true})}
}

// keep reserves memory for the selectors of a watch, which are kept as long as the watch, until release is
// called.
func (l selectorLimit) keep(ctx context.Context, label, field string) (release func(), err error) {
	size := selectorFactor*(len(label)+len(field)) + requirementBytes*requestinfo.Requirements(field, label)
	if size < smallSelectors {
		return func() {}, nil
	}
	c := limit.Claim[string]{Key: request.Principal(ctx), Cost: size}
	if !l.bytes.TryAcquire(c) {
		return nil, apierrors.NewTooManyRequests("Too many watches with large selectors are in progress, please try again later", 1)
	}
	return func() { l.bytes.Release(c) }, nil
}
