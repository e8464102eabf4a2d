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

	"binnacle/services/apiserver/internal/answers"
)

// Patience is how long the head of an answer is waited for, from the beginning of the
// connection. Clients mostly have less; kubelets ask container runtimes for minutes.
const Patience = 10 * time.Minute

// errSilent refuses a request that was not answered in time.
var errSilent = apierrors.NewTimeoutError("the server that was asked to upgrade the connection did not answer in time", 0)

// Conn is a connection over which a request was answered. It has to be closed.
type Conn struct {
	net.Conn
	// Answer to the request; its body, if it refuses, is read from the connection.
	Answer *http.Response

	head []byte
	read *bufio.Reader
	stop func() bool
}

// Read reads what follows the head of the answer.
func (c *Conn) Read(b []byte) (int, error) { return c.read.Read(b) }

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// Agreed tells whether the other side goes on in another protocol.
func (c *Conn) Agreed() bool { return c.Answer.StatusCode == http.StatusSwitchingProtocols }

// outlast has the connection end with another context than the request's; false when it has
// ended.
func (c *Conn) outlast(life context.Context) bool {
	if !c.stop() {
		return false
	}
	c.stop = context.AfterFunc(life, func() { _ = c.Conn.Close() })
	return true
}

// Forget lets go of the answer; what follows it is still there.
func (c *Conn) Forget() { c.Answer, c.head = nil, nil }

// Open sends a request over a connection of its own, which a transport says how to make,
// and has its answer within a time. The connection ends with the request's context.
func Open(r *http.Request, by *http.Transport, within time.Duration) (*Conn, error) {
	until := time.Now().Add(within)
	dialing, cancel := context.WithDeadline(r.Context(), until)
	defer cancel()
	raw, err := proxy.DialURL(dialing, r.URL, by)
	if err != nil {
		return nil, &DialError{silent(r.Context(), until, err)}
	}
	c := &Conn{Conn: raw, read: bufio.NewReader(raw)}
	c.stop = context.AfterFunc(r.Context(), func() { _ = raw.Close() })
	if err := c.ask(r, until); err != nil {
		_ = c.Close()
		return nil, silent(r.Context(), until, err)
	}
	return c, nil
}

// DialError says why there is no connection.
type DialError struct{ Err error }

func (e *DialError) Error() string { return "error dialing backend: " + e.Err.Error() }

// Unwrap serves errors.Is and errors.As.
func (e *DialError) Unwrap() error { return e.Err }

// silent is the error when time is over, unless the request is.
func silent(ctx context.Context, until time.Time, err error) error {
	if ctx.Err() == nil && !time.Now().Before(until) {
		return errSilent
	}
	return err
}

// ask sends the request and reads the head of the answer.
func (c *Conn) ask(r *http.Request, until time.Time) error {
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	if err := r.Write(c.Conn); err != nil {
		return fmt.Errorf("error sending request: %w", err)
	}
	var err error
	if c.head, err = head(c.read); err != nil {
		return err
	}
	if c.Answer, err = http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(c.head), c.read)), r); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

// head reads the head of an answer, and nothing of what follows.
func head(from *bufio.Reader) ([]byte, error) {
	var all []byte
	for begin, lines := 0, 0; ; {
		part, err := from.ReadSlice('\n')
		all = append(all, part...)
		switch {
		case len(all) > answers.MaxHead, lines > answers.MaxFields:
			return nil, answers.ErrHead
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case len(bytes.TrimRight(all[begin:], "\r\n")) == 0:
			return all, nil
		}
		begin, lines = len(all), lines+1
	}
}
