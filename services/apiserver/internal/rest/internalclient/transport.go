package internalclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"binnacle/services/apiserver/internal/request"
)

// maxResponse bounds the body of a response to a request of the server to itself, in bytes.
const maxResponse = 8 << 20

// Transport sends HTTP requests to the server itself without a network, as the server's own user.
// Webhooks that name the service kubernetes are called with it.
type Transport struct {
	// Handler returns the handler of all requests.
	Handler func() http.Handler
}

// RoundTrip implements http.RoundTripper. It returns when the handler has finished. A response of
// more than maxResponse bytes is an error.
func (t Transport) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	// 1. Make a context that ends with that of r, but does not share the state of the request that
	// causes this one.
	ctx, s := request.Derive(context.Background())
	s.Internal = true
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.Context(), cancel)()
	if end, ok := r.Context().Deadline(); ok {
		var cancelDeadline context.CancelFunc
		ctx, cancelDeadline = context.WithDeadline(ctx, end)
		defer cancelDeadline()
	}
	// 2. Make the request as the server would receive it.
	incoming := r.Clone(ctx)
	incoming.URL = &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	incoming.Host = r.URL.Host
	incoming.RequestURI = r.URL.RequestURI()
	incoming.RemoteAddr = "127.0.0.1:0"
	if incoming.Body == nil {
		incoming.Body = http.NoBody
	}
	defer incoming.Body.Close()
	// 3. Serve it, and return the buffered response.
	response := &bufferedResponse{header: http.Header{}}
	defer func() {
		if p := recover(); p != nil {
			resp = nil
			err = fmt.Errorf("request to the server itself: panic: %v", p)
		}
	}()
	t.Handler().ServeHTTP(response, incoming)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if response.tooLong {
		return nil, errors.New("the response of the server itself is too long")
	}
	response.WriteHeader(http.StatusOK)
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", response.code, http.StatusText(response.code)),
		StatusCode:    response.code,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        response.header,
		Body:          io.NopCloser(&response.body),
		ContentLength: int64(response.body.Len()),
		Request:       r,
	}, nil
}

// bufferedResponse is an http.ResponseWriter that buffers a response.
type bufferedResponse struct {
	header  http.Header
	code    int
	body    bytes.Buffer
	tooLong bool
}

func (w *bufferedResponse) Header() http.Header { return w.header }

func (w *bufferedResponse) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
	}
}

func (w *bufferedResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.tooLong = w.tooLong || w.body.Len()+len(p) > maxResponse
	if w.tooLong {
		return 0, io.ErrShortWrite
	}
	return w.body.Write(p)
}

// Flush implements http.Flusher.
func (w *bufferedResponse) Flush() { w.WriteHeader(http.StatusOK) }

// SetReadDeadline does nothing, because there is no network to wait for. It serves
// http.ResponseController.
func (w *bufferedResponse) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing; see SetReadDeadline.
func (w *bufferedResponse) SetWriteDeadline(time.Time) error { return nil }

// Authenticator is an authn.Authenticator for the requests of Transport.
type Authenticator struct{}

// Authenticate returns the server's own user for a request of Transport, and nil for any other one.
func (Authenticator) Authenticate(r *http.Request) (*request.User, error) {
	if !request.FromContext(r.Context()).Internal {
		return nil, nil
	}
	return request.ServerUser(), nil
}
