package responselimit

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/request"
)

const (
	// maxPage is the maximum size in bytes of a page whose links are rewritten, compressed and
	// uncompressed. maxRewritten is the approximate maximum size of the rewritten page.
	maxPage      = 1 << 20
	maxRewritten = 4 << 20

	html = "text/html"
	// skippedHTML is the same media type in a spelling that the proxy does not recognize. The proxy
	// compares case-sensitively, but clients do not (RFC 9110, 8.3.1).
	skippedHTML = "text/HTML"
)

// PageLimiter limits the number of pages that are held while their links are rewritten. Principals
// share it, because the server of a page may send it slowly.
type PageLimiter struct{ slots *limit.Queue[string] }

// NewPageLimiter returns a PageLimiter for maximum pages at a time. Each page is held until its
// response has ended.
func NewPageLimiter(maximum int) *PageLimiter {
	return &PageLimiter{limit.New[string](limit.Options{Size: maximum, FairShare: true})}
}

// Transport returns a round tripper for a proxy that rewrites links. Pages that are too large, or
// that exceed the limit of pages, pass without rewriting. The contexts of requests must end with
// the response.
func (p *PageLimiter) Transport(below http.RoundTripper) http.RoundTripper {
	return &limitedTransport{below, p}
}

// limitedTransport limits the headers of responses and the HTML pages in progress.
type limitedTransport struct {
	http.RoundTripper
	limiter *PageLimiter
}

// WrappedRoundTripper lets an upgrade find the transport.
func (t *limitedTransport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	DropOwn(resp.Header)
	DropOwn(resp.Trailer)
	resp.Body = &trailerFilter{resp.Body, resp}
	if !isPage(resp) {
		return resp, nil
	}
	slot := limit.Claim[string]{Key: request.Principal(r.Context())}
	if !t.limiter.slots.TryAcquire(slot) {
		skipRewrite(resp)
		return resp, nil
	}
	release := func() { t.limiter.slots.Release(slot) }
	stop := context.AfterFunc(r.Context(), release)
	// Rewriting lengthens a link by at most the location that the proxy sends to the server.
	linkGrowth := len("https://") + len(r.Header.Get("X-Forwarded-Host")) + len(r.Header.Get("X-Forwarded-Uri"))
	if !readPage(resp, linkGrowth) {
		if stop() {
			release()
		}
		skipRewrite(resp)
	}
	return resp, nil
}

// untraced is a context that hides the client trace, which receives informational responses.
// Without it, the transport bounds their number and the proxy does not forward them.
type untraced struct{ context.Context }

// Value implements context.Context.
func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, trace := v.(*httptrace.ClientTrace); trace {
		return nil
	}
	return v
}

// isPage reports whether the proxy would rewrite a response. The proxy has the same check.
func isPage(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.TrimSpace(kind) == html
}

// skipRewrite prevents the proxy from rewriting a response.
func skipRewrite(resp *http.Response) {
	kind := resp.Header.Get("Content-Type")
	resp.Header.Set("Content-Type", strings.Replace(kind, html, skippedHTML, 1))
}

// readPage reads a page and reports whether it may be rewritten. Each link may grow by linkGrowth
// bytes. In either case, the whole page can still be read from the response.
func readPage(resp *http.Response, linkGrowth int) bool {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	rest := io.Reader(resp.Body)
	if err != nil { // the proxy gets the error
		rest = errorReader{err}
	}
	resp.Body = restoredBody{io.MultiReader(bytes.NewReader(text), rest), resp.Body}
	return len(text) <= maxPage && staysSmall(text, resp.Header.Get("Content-Encoding"), linkGrowth)
}

// staysSmall reports whether a page stays within the limits when it is decompressed and each of its
// attributes grows by linkGrowth bytes. It ignores errors of the compression; the proxy reports
// them.
func staysSmall(text []byte, encoding string, linkGrowth int) bool {
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
		if size > maxPage || size+links*linkGrowth > maxRewritten {
			return false
		}
		if err != nil {
			return true
		}
	}
}

// restoredBody is the body of a response after readPage has read a part of it.
type restoredBody struct {
	io.Reader
	io.Closer
}

// errorReader is a reader that returns an error.
type errorReader struct{ err error }

// Read implements io.Reader.
func (r errorReader) Read([]byte) (int, error) { return 0, r.err }
