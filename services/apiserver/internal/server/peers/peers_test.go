package peers_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage"
)

// TestWhoIsAsked: other replicas that are there, for what they say that they serve.
func TestWhoIsAsked(t *testing.T) {
	w := newWorld(t,
		version("g.theirs", map[string][]string{"other": {"g/v1", "old.g/v1", "a/b/c"}}),
		version("g.both", map[string][]string{"me": {"g/v1"}, "other": {"g/v1", "g/v1"}}),
		version("g.mine", map[string][]string{"me": {"g/v1"}}),
		version("g.gone", map[string][]string{"left": {"g/v1"}}),
		version("g.defined", map[string][]string{"other": {"g/v1"}}, "Other", "CustomResourceDefinition"),
		version("g.owned", map[string][]string{"other": {"g/v1"}}, "Other"),
		version("core.pods", map[string][]string{"other": {"v1"}}),
		storage.KeyValue{Key: prefix + "g.broken", Value: []byte("{"), CreateRevision: 2, ModRevision: 2},
	)
	w.gone["left"] = true
	in := func(group, version, resource string) *requestinfo.Info {
		return &requestinfo.Info{IsResource: true, Group: group, Version: version, Resource: resource}
	}
	for _, c := range []struct {
		name   string
		op     *requestinfo.Info
		header string
		want   bool
	}{
		{"theirs", in("g", "v1", "theirs"), "", true},
		{"of another group", in("old.g", "v1", "theirs"), "", true},
		{"of another version", in("g", "v2", "theirs"), "", false},
		{"from a peer", in("g", "v1", "theirs"), "true", false},
		{"from no peer", in("g", "v1", "theirs"), "false", true},
		{"no resource", &requestinfo.Info{Group: "g", Version: "v1", Resource: "theirs"}, "", false},
		{"another's too", in("g", "v1", "both"), "", true},
		{"mine alone", in("g", "v1", "mine"), "", false},
		{"of one that is gone", in("g", "v1", "gone"), "", false},
		{"defined", in("g", "v1", "defined"), "", false},
		{"owned", in("g", "v1", "owned"), "", true},
		{"of the core", in("", "v1", "pods"), "", true},
		{"nobody's", in("g", "v1", "nobodys"), "", false},
		{"broken", in("g", "v1", "broken"), "", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(peers.Header, c.header)
		if got := w.Handler(r, c.op) != nil; got != c.want {
			t.Errorf("%s: is carried on: %v", c.name, got)
		}
	}
}

// TestWhatIsSaidLaterCounts.
func TestWhatIsSaidLaterCounts(t *testing.T) {
	w := newWorld(t, version("g.first", map[string][]string{"other": {"g/v1"}}))
	w.replica("other", func(http.ResponseWriter, *http.Request) {})
	if w.ask("first") == nil || w.ask("later") != nil {
		t.Error("it is not as it was said")
	}
	w.said.more <- version("g.later", map[string][]string{"other": {"g/v1"}})
	eventually(t, "it is said", func() bool { return w.ask("later") != nil })
	if w.ask("first") == nil {
		t.Error("what was said before is forgotten")
	}
}

// TestPeersKnowWhoAsks, and that a peer did.
func TestPeersKnowWhoAsks(t *testing.T) {
	w := newWorld(t, version("g.theirs", map[string][]string{"other": {"g/v1"}}))
	w.replica("other", func(rw http.ResponseWriter, r *http.Request) {
		by := "nobody"
		if c := r.TLS.PeerCertificates; len(c) > 0 {
			by = c[0].Subject.CommonName
		}
		_, _ = fmt.Fprint(rw, r.URL.Path, " ", r.Header.Get(peers.Header), " ", r.Header["X-Remote-User"], r.Header["X-Remote-Group"], " ", by)
	})
	rec := w.ask("theirs", "X-Remote-User", "root", peers.Header, "no")
	if want := "/apis/g/v1/theirs true [ada] [dev] front-proxy-client"; rec.Code != 200 || rec.Body.String() != want {
		t.Errorf("answered %d %s, want %s", rec.Code, rec.Body, want)
	}
	w.counted(map[string]float64{"200": 1})
}

// counted waits until so many answers of each code are counted: what is upgraded ends by itself.
func (w *world) counted(want map[string]float64) {
	w.t.Helper()
	eventually(w.t, fmt.Sprint(want, " are counted"), func() bool {
		families, err := w.registry.Gather()
		if err != nil {
			w.t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				got[m.Label[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
		return maps.Equal(got, want)
	})
}

// TestAnswersAreCountedByTheirCodes, of which the last is it.
func TestAnswersAreCountedByTheirCodes(t *testing.T) {
	w := newWorld(t, version("g.theirs", map[string][]string{"other": {"g/v1"}}))
	w.replica("other", func(rw http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Want") {
		case "404":
			rw.WriteHeader(http.StatusEarlyHints)
			rw.WriteHeader(404)
			_, _ = rw.Write([]byte("none"))
		case "101":
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")
		}
	})
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := w.Handler(r, &requestinfo.Info{IsResource: true, Group: "g", Version: "v1", Resource: "theirs"})
		h.ServeHTTP(rw, r.WithContext(request.WithUser(r.Context(), &request.User{Name: "ada"})))
	}))
	defer front.Close()
	for _, want := range []string{"404", "200", "101"} {
		r, err := http.NewRequest("GET", front.URL+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Want", want)
		if want == "101" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "x")
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body) // an upgraded connection ends as it likes
		resp.Body.Close()
		if fmt.Sprint(resp.StatusCode) != want || want == "101" && string(text) != "hello" {
			t.Errorf("answered %d %s, want %s", resp.StatusCode, text, want)
		}
	}
	w.counted(map[string]float64{"404": 1, "200": 1, "101": 1})
}

// TestNoPeerIsThere: who asks is told to come again, and the store is not asked for each.
func TestNoPeerIsThere(t *testing.T) {
	for _, failure := range []error{nil, errors.New("the store is away")} {
		w := newWorld(t, version("g.theirs", map[string][]string{"other": {"g/v1"}}))
		w.failure = failure
		if failure != nil {
			w.replica("other", func(http.ResponseWriter, *http.Request) { t.Error("it is asked") })
		}
		begun := time.Now()
		for range 3 {
			if rec := w.ask("theirs"); rec.Code != 503 {
				t.Errorf("answered %d", rec.Code)
			}
		}
		if len(w.refused) != 3 || !apierrors.IsServiceUnavailable(w.refused[0]) || strings.Contains(w.refused[0].Error(), "store") {
			t.Errorf("refused with %v", w.refused)
		}
		if w.looked != 1 && time.Since(begun) < time.Second {
			t.Errorf("it was looked %d times", w.looked)
		}
		w.counted(map[string]float64{})
	}
}

// eventually waits until something is so, which addresses that are kept for a second put off.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !check(); time.Sleep(20 * time.Millisecond) { // between polls of a condition
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// TestPeersMove, and are asked where they are; connections to where they were are let go.
func TestPeersMove(t *testing.T) {
	w := newWorld(t, version("g.theirs", map[string][]string{"other": {"g/v1"}}))
	say := func(text string) (*httptest.Server, *atomic.Int64) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) }))
		open := &atomic.Int64{}
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		w.starts("other", s)
		return s, open
	}
	_, first := say("first")
	for range 2 {
		if rec := w.ask("theirs"); rec.Body.String() != "first" || first.Load() != 1 {
			t.Fatalf("answered %d %s, by %d connections", rec.Code, rec.Body, first.Load())
		}
	}
	_, second := say("second")
	eventually(t, "it is asked where it is", func() bool { return w.ask("theirs").Body.String() == "second" })
	eventually(t, "the first is let go", func() bool { return first.Load() == 0 })
	w.mu.Lock()
	w.trusted = x509.NewCertPool() // nobody is
	w.mu.Unlock()
	if rec := w.ask("theirs"); rec.Code < 500 {
		t.Errorf("a server that is not trusted answered %d %s", rec.Code, rec.Body)
	}
	eventually(t, "connections by another trust are let go", func() bool { return second.Load() == 0 })
	w.mu.Lock()
	w.trusted = w.pool()
	w.mu.Unlock()
	if rec := w.ask("theirs"); rec.Body.String() != "second" {
		t.Errorf("a server that is trusted again: %d %s", rec.Code, rec.Body)
	}
	w.mu.Lock()
	delete(w.addresses, "other")
	w.mu.Unlock()
	eventually(t, "it is gone", func() bool { return w.ask("theirs").Code == 503 })
	eventually(t, "the second is let go", func() bool { return second.Load() == 0 })
	_, third := say("third")
	eventually(t, "it is back", func() bool { return w.ask("theirs").Body.String() == "third" })
	w.stop()
	eventually(t, "what ends lets go of all", func() bool { return third.Load() == 0 })
}

// TestThoseWhoAnswerAreAskedRather, and who did not is asked when it answers again.
func TestThoseWhoAnswerAreAskedRather(t *testing.T) {
	w := newWorld(t, version("g.both", map[string][]string{"dead": {"g/v1"}, "other": {"g/v1"}}), version("g.dead", map[string][]string{"dead": {"g/v1"}}))
	w.replica("other", func(http.ResponseWriter, *http.Request) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.at("dead", l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other is asked alone", func() bool {
		for range 30 {
			if w.ask("both").Code != 200 {
				return false
			}
		}
		return true
	})
	if rec := w.ask("dead"); rec.Code < 500 || len(w.refused) > 0 { // it says so itself
		t.Errorf("answered %d, refused with %v", rec.Code, w.refused)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_ = s.Listener.Close() // for another
	if s.Listener, err = net.Listen("tcp", l.Addr().String()); err != nil {
		t.Skip("the port is another's by now")
	}
	w.starts("dead", s)
	eventually(t, "it is asked again", func() bool { return w.ask("dead").Code == 200 })
}
