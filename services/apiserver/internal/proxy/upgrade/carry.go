package upgrade

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"

	"binnacle/services/apiserver/internal/proxy/responselimit"
)

// refusalTime bounds how long reading a rejection may take.
const refusalTime = 10 * time.Second

// Way describes the target of an upgrade.
type Way struct {
	At          *url.URL
	Connections *http.Transport
	// Within bounds the wait for the head of the response.
	Within time.Duration
	Errors proxy.ErrorResponder
	// Life, if set, replaces the request's context as the lifetime of the connections once the
	// other side has agreed.
	Life context.Context
	// Answered, if set, is called when a response has arrived.
	Answered func(agreed bool)
}

// Carry proxies a request, and joins both connections if the other side agrees. A rejection becomes
// the response. Anything else is an error.
func (y *Way) Carry(w http.ResponseWriter, r *http.Request) {
	out := utilnet.CloneRequest(r)
	out.Trailer = nil // some servers take trailers for headers
	utilnet.AppendForwardedForHeader(out)
	out.URL = y.At
	there, err := Open(out, y.Connections, y.Within)
	if err != nil {
		y.Errors.Error(w, r, err)
		return
	}
	defer there.Close()
	if y.Answered != nil {
		y.Answered(there.Agreed())
	}
	switch code := there.Answer.StatusCode; {
	case there.Agreed():
		y.join(w, r, there)
	case code < http.StatusBadRequest:
		y.Errors.Error(w, r, fmt.Errorf("invalid upgrade response: status code %d", code))
	default:
		refuse(w, r, there)
	}
}

// join sends the agreement to the client and joins the connections.
func (y *Way) join(w http.ResponseWriter, r *http.Request, there *Conn) {
	conn, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		y.Errors.Error(w, r, fmt.Errorf("error hijacking connection: %w", err))
		return
	}
	defer conn.Close()
	life := y.Life
	if life == nil {
		life = r.Context()
	}
	if !there.outlast(life) {
		return
	}
	defer context.AfterFunc(life, func() { _ = conn.Close() })()
	if _, err := conn.Write(strange(there.head)); err != nil {
		return // the client is gone
	}
	there.Forget() // frees memory, because the connection may last
	Join(&ahead{conn, buffers.Reader}, there)
}

// ahead is a client's connection with buffered input.
type ahead struct {
	net.Conn
	read *bufio.Reader
}

// Read implements net.Conn.
func (a *ahead) Read(b []byte) (int, error) { return a.read.Read(b) }

// strange returns the head without the header fields that only this server may set, otherwise byte
// for byte.
func strange(head []byte) []byte {
	var out []byte
	own := false
	for line := range bytes.Lines(head) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if folded := line[0] == ' ' || line[0] == '\t'; !folded {
			own = responselimit.IsOwn(string(bytes.TrimSpace(name)))
		}
		if !own {
			out = append(out, line...)
		}
	}
	return out
}

// betweenTwo lists the header fields that apply to a single connection.
var betweenTwo = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// refuse forwards a rejection. The client may already have sent data in the new protocol, so the
// connection cannot be used for another request.
func refuse(w http.ResponseWriter, r *http.Request, there *Conn) {
	from := there.Answer.Header
	for _, named := range from["Connection"] {
		for name := range strings.SplitSeq(named, ",") {
			from.Del(textproto.TrimString(name))
		}
	}
	for _, name := range betweenTwo {
		from.Del(name)
	}
	responselimit.DropOwn(from)
	to := w.Header()
	for name := range to { // Kubernetes forwards the response unchanged
		if name != "Audit-Id" {
			delete(to, name)
		}
	}
	maps.Copy(to, from)
	if r.ProtoMajor == 1 {
		to.Set("Connection", "close")
	}
	w.WriteHeader(there.Answer.StatusCode)
	err := there.SetReadDeadline(time.Now().Add(refusalTime))
	if err == nil {
		_, err = io.Copy(&prompt{w, http.NewResponseController(w)}, there.Answer.Body)
	}
	if err != nil {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // the client must notice that the response is incomplete
	}
}

// prompt flushes each write.
type prompt struct {
	io.Writer
	to *http.ResponseController
}

// Write implements io.Writer.
func (p *prompt) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if err == nil {
		err = p.to.Flush()
	}
	return n, err
}

// Join copies in both directions until one of them ends, and then closes both connections.
func Join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	carry := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // after any error, the other direction ends too
		done <- struct{}{}
	}
	go carry(a, b)
	go carry(b, a)
	<-done
	_ = a.Close()
	_ = b.Close()
	<-done
}
