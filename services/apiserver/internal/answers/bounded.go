package answers

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
)

const (
	// maxPage is the largest page whose links are rewritten, in bytes, as it comes and
	// as it is meant, and maxWritten about what may become of it.
	maxPage    = 1 << 20
	maxWritten = 4 << 20
	// maxPages are held at a time, each until its answer has ended.
	maxPages = 16

	rewritten = "text/html"
	// asItIs is the same type, which the proxy does not take for it: it tells capital
	// letters from small ones, who reads the page does not (RFC 9110, 8.3.1).
	asItIs = "text/HTML"
)

// Room is where pages are held while links in them are rewritten.
type Room struct{ taken chan struct{} }

// NewRoom makes room for a few pages.
func NewRoom() *Room { return &Room{make(chan struct{}, maxPages)} }

// Bounded is a round tripper to be used by a proxy that rewrites links: pages that are
// too long for that, or find no room, go through as they are. Contexts of requests have
// to end with the answer.
func (r *Room) Bounded(below http.RoundTripper) http.RoundTripper { return &bounded{below, r} }

type bounded struct {
	http.RoundTripper
	room *Room
}

// WrappedRoundTripper lets an upgrade find how to connect.
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	if fields(resp.Header) > MaxFields {
		_ = resp.Body.Close()
		return nil, ErrHead
	}
	DropOwn(resp.Header)
	DropOwn(resp.Trailer)
	resp.Body = &stranger{resp.Body, resp}
	if !isPage(resp) {
		return resp, nil
	}
	select {
	case b.room.taken <- struct{}{}:
	default:
		leave(resp)
		return resp, nil
	}
	release := func() { <-b.room.taken }
	keeps := context.AfterFunc(r.Context(), release)
	// A link grows by no more than what the proxy tells the server of where it is.
	link := len("https://") + len(r.Header.Get("X-Forwarded-Host")) + len(r.Header.Get("X-Forwarded-Uri"))
	if !take(resp, link) {
		if keeps() {
			release()
		}
		leave(resp)
	}
	return resp, nil
}

// untraced is a context that hides who wants to be told of answers before the answer.
// The transport bounds how many there are then, and nobody writes them.
type untraced struct{ context.Context }

// Value implements context.Context.
func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, trace := v.(*httptrace.ClientTrace); trace {
		return nil
	}
	return v
}

// isPage tells whether the proxy would rewrite an answer. It tells that like this.
func isPage(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.TrimSpace(kind) == rewritten
}

// leave has the proxy let an answer be.
func leave(resp *http.Response) {
	kind := resp.Header.Get("Content-Type")
	resp.Header.Set("Content-Type", strings.Replace(kind, rewritten, asItIs, 1))
}

// take reads a page; false when it is not one to be rewritten. Either way all of it can
// be read from the answer.
func take(resp *http.Response, link int) bool {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	rest := io.Reader(resp.Body)
	if err != nil { // the proxy is told
		rest = failed{err}
	}
	resp.Body = body{io.MultiReader(bytes.NewReader(text), rest), resp.Body}
	return len(text) <= maxPage && fits(text, resp.Header.Get("Content-Encoding"), link)
}

// fits tells whether a page stays small when its compression is undone and each of its
// attributes becomes longer. What is wrong with its compression, the proxy finds.
func fits(text []byte, encoding string, link int) bool {
	var plain io.Reader = bytes.NewReader(text)
	switch encoding {
	case "gzip":
		z, err := gzip.NewReader(plain)
		if err != nil {
			return true
		}
		plain = z
	case "deflate":
		plain = flate.NewReader(plain)
	}
	size, links := 0, 0
	part := make([]byte, 32<<10)
	for {
		n, err := plain.Read(part)
		size += n
		links += bytes.Count(part[:n], []byte("="))
		if size > maxPage || size+links*link > maxWritten {
			return false
		}
		if err != nil {
			return true
		}
	}
}

// body is that of an answer of which a part was read.
type body struct {
	io.Reader
	io.Closer
}

// failed is what cannot be read any further.
type failed struct{ err error }

// Read implements io.Reader.
func (f failed) Read([]byte) (int, error) { return 0, f.err }
