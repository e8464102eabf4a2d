package comparison

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Answer is the normalized response of a server.
type Answer struct {
	Status  int
	headers map[string]string
	body    any
	Err     string
}

// retryTimeout limits the repetition of a step without a limit of its own.
const retryTimeout = 3 * time.Minute

// Session is the state of a scenario on one server. One goroutine uses it.
type Session struct {
	*Server
	Vars map[string]string
	// versions holds the last version of each object that the session created, by its uid.
	versions map[string]int64
	// generated matches the name that the server generates for the object of the step; nil matches
	// none.
	generated *regexp.Regexp
}

// newSession starts a scenario in a namespace.
func newSession(s *Server, namespace string) *Session {
	vars := map[string]string{"ns": namespace}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://")); err == nil {
		vars["port"] = ":" + port
	}
	return &Session{Server: s, Vars: vars, versions: map[string]int64{}}
}

// send sends a step and returns the response before normalization, with its whole body.
func (s *Session) send(st Step) (*http.Response, []byte, error) {
	body, header := []byte(expand(st.Text, s.Vars)), map[string]string{"Accept": "application/json"}
	if st.Object != nil {
		encoded, as, err := encode(expandTree(st.Object, s.Vars), st.Encoding)
		if err != nil {
			return nil, nil, err
		}
		body, header["Content-Type"] = encoded, string(as)
	}
	maps.Copy(header, st.Header)
	req, err := http.NewRequest(st.Method, s.url+expand(st.Path, s.Vars), strings.NewReader(string(body)))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	if _, set := header["Authorization"]; !set {
		req.Header.Set("Authorization", "Bearer "+AdminToken)
	}
	for k, v := range header {
		req.Header.Del(k)
		for one := range strings.SplitSeq(expand(v, s.Vars), "\x00") {
			if one != "" {
				req.Header.Add(k, one)
			}
		}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, text, err
}

// perform sends a step and returns the normalized response. It saves the variables of the step.
func (s *Session) perform(st Step) Answer {
	for start := time.Now(); ; <-time.After(pollInterval) {
		resp, text, err := s.send(st)
		if err != nil {
			return Answer{Err: strings.ReplaceAll(err.Error(), s.url, "")}
		}
		body := decode(resp.Header.Get("Content-Type"), text)
		if st.Until != nil && !st.Until(resp.StatusCode, body) && time.Since(start) < cmp.Or(st.RetryFor, retryTimeout) {
			continue
		}
		if _, list := body.([]any); !list && isEvent(body) {
			body = []any{body}
		}
		for name, path := range st.Save {
			if v := Lookup(body, path); v != nil {
				s.Vars[name] = fmt.Sprint(v)
			}
		}
		if events, ok := body.([]any); ok && !strings.Contains(st.Path, "resourceVersion=") {
			body = lastEvents(events)
		}
		s.generated = nil
		if prefix, ok := Lookup(st.Object, "metadata.generateName").(string); ok && prefix != "" {
			s.generated = regexp.MustCompile(regexp.QuoteMeta(prefix[:min(len(prefix), longestGenerated)]) + "[bcdfghjklmnpqrstvwxz2456789]{5}")
		}
		if resp.StatusCode == http.StatusCreated && s.versions != nil {
			s.follow(body)
		}
		return s.normalize(resp, body)
	}
}

// lastEvents returns the last event of each object. A watch without a version starts at the state
// of a cache, so that the number of events before differs.
func lastEvents(events []any) any {
	last := map[any]int{}
	for i, e := range events {
		last[Lookup(e, "object.metadata.uid")] = i
	}
	var out []any
	for i, e := range events {
		uid := Lookup(e, "object.metadata.uid")
		if uid == nil || last[uid] == i {
			if event, ok := e.(map[string]any); ok && event["type"] == "MODIFIED" {
				event["type"] = "ADDED"
			}
			out = append(out, e)
		}
	}
	return out
}

// Exchange sends a step to both servers at the same time.
func Exchange(reference, product *Session, st Step) (want, got Answer) {
	var wg sync.WaitGroup
	wg.Go(func() { want = reference.perform(st) })
	wg.Go(func() { got = product.perform(st) })
	wg.Wait()
	return want, got
}

// Fetch returns the JSON value at a path of a server.
func (s *Server) Fetch(path string) (any, error) {
	one := &Session{Server: s, Vars: map[string]string{}}
	resp, text, err := one.send(Step{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return decode(resp.Header.Get("Content-Type"), text), nil
}
