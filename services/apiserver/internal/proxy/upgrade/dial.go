package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"

	"binnacle/services/apiserver/internal/proxy/responselimit"
)

// DefaultTimeout is the maximum wait for the head of a response, from the start of the connection.
// Clients usually wait less. Kubelets may wait minutes for container runtimes.
const DefaultTimeout = 10 * time.Minute

// errTimeout reports that the response did not arrive in time.
var errTimeout = apierrors.NewTimeoutError("the server that was asked to upgrade the connection did not answer in time", 0)

// Conn is a connection on which the response to a request has arrived. The caller must close it.
type Conn struct {
	net.Conn
	// Response is the response to the request. The body of a rejection is read from the connection.
	Response *http.Response

	head []byte        // the response head as received
	read *bufio.Reader // input, which may hold data after the head
	// detach removes the context that closes the connection. It returns false if that has ended.
	detach func() bool
}

// Read reads the data after the head of the response.
func (c *Conn) Read(b []byte) (int, error) { return c.read.Read(b) }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.detach()
	return c.Conn.Close()
}

// Upgraded reports whether the other side switches to another protocol.
func (c *Conn) Upgraded() bool { return c.Response.StatusCode == http.StatusSwitchingProtocols }

// setLifetime makes the connection close when lifetime ends, and no longer when the request's
// context ends. It returns false if the request has already ended.
func (c *Conn) setLifetime(lifetime context.Context) bool {
	if !c.detach() {
		return false
	}
	c.detach = context.AfterFunc(lifetime, func() { _ = c.Conn.Close() })
	return true
}

// DropResponse frees the memory of the response head. Data after the head can still be read.
func (c *Conn) DropResponse() {
	c.Response = nil
	c.head = nil
}

// Dial sends a request over a new connection and returns when the head of the response has arrived.
// transport configures the connection. timeout bounds the wait. The connection is closed when the
// request's context ends.
func Dial(r *http.Request, transport *http.Transport, timeout time.Duration) (*Conn, error) {
	deadline := time.Now().Add(timeout)
	dialCtx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	raw, err := proxy.DialURL(dialCtx, r.URL, transport)
	if err != nil {
		return nil, &DialError{timeoutError(r.Context(), deadline, err)}
	}
	c := &Conn{Conn: raw, read: bufio.NewReader(raw)}
	c.detach = context.AfterFunc(r.Context(), func() { _ = raw.Close() })
	if err := c.sendRequest(r, deadline); err != nil {
		_ = c.Close()
		return nil, timeoutError(r.Context(), deadline, err)
	}
	return c, nil
}

// DialError reports why the connection could not be opened.
type DialError struct{ Err error }

func (e *DialError) Error() string { return "error dialing backend: " + e.Err.Error() }

// Unwrap supports errors.Is and errors.As.
func (e *DialError) Unwrap() error { return e.Err }

// timeoutError returns errTimeout if the deadline has passed and the request has not ended,
// otherwise err.
func timeoutError(ctx context.Context, deadline time.Time, err error) error {
	if ctx.Err() == nil && !time.Now().Before(deadline) {
		return errTimeout
	}
	return err
}

// sendRequest sends the request and reads the head of the response.
func (c *Conn) sendRequest(r *http.Request, deadline time.Time) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	if err := r.Write(c.Conn); err != nil {
		return fmt.Errorf("error sending request: %w", err)
	}
	var err error
	if c.head, err = readHead(c.read); err != nil {
		return err
	}
	if c.Response, err = http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(c.head), c.read)), r); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// readHead reads the head of a response, and nothing after it.
func readHead(from *bufio.Reader) ([]byte, error) {
	var all []byte
	for start := 0; ; {
		line, err := from.ReadSlice('\n')
		all = append(all, line...)
		switch {
		case len(all) > responselimit.MaxHead:
			return nil, responselimit.ErrHead
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(bytes.TrimRight(all[start:], "\r\n")) == 0:
			return all, nil
		}
		start = len(all)
	}
}
