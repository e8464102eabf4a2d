package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// answer is the normalized response of a server.
type answer struct {
	status  int
	headers map[string]string
	body    any
	err     string
}

// retryTimeout limits the repetition of a step.
const retryTimeout = 10 * time.Second

// session is the state of a conversation on one server.
type session struct {
	*server
	vars map[string]string
}

// newSession starts a conversation in a namespace.
func newSession(s *server, namespace string) *session {
	vars := map[string]string{"ns": namespace}
	if _, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://")); err == nil {
		vars["port"] = ":" + port
	}
	return &session{server: s, vars: vars}
}

// send sends a step and returns the response as it is.
func (s *session) send(st step) (*http.Response, []byte, error) {
	body, header := []byte(expand(st.text, s.vars)), map[string]string{"Accept": "application/json"}
	if st.object != nil {
		encoded, as, err := encode(expandTree(st.object, s.vars), st.encoding)
		if err != nil {
			return nil, nil, err
		}
		body, header["Content-Type"] = encoded, string(as)
	}
	maps.Copy(header, st.header)
	req, err := http.NewRequest(st.method, s.url+expand(st.path, s.vars), strings.NewReader(string(body)))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	if _, set := header["Authorization"]; !set {
		req.Header.Set("Authorization", "Bearer "+adminToken)
	}
	for k, v := range header {
		req.Header.Del(k)
		for one := range strings.SplitSeq(expand(v, s.vars), "\x00") {
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
func (s *session) perform(st step) answer {
	for began := time.Now(); ; <-time.After(pollInterval) {
		resp, text, err := s.send(st)
		if err != nil {
			return answer{err: strings.ReplaceAll(err.Error(), s.url, "")}
		}
		if st.until != 0 && resp.StatusCode != st.until && time.Since(began) < retryTimeout {
			continue
		}
		body := decode(resp.Header.Get("Content-Type"), text)
		if _, list := body.([]any); !list && isEvent(body) {
			body = []any{body}
		}
		for name, path := range st.save {
			if v := lookup(body, path); v != nil {
				s.vars[name] = fmt.Sprint(v)
			}
		}
		return normalize(resp, body, s.vars)
	}
}

// exchange sends a step to both servers at the same time.
func exchange(reference, product *session, st step) (want, got answer) {
	var wg sync.WaitGroup
	wg.Go(func() { want = reference.perform(st) })
	wg.Go(func() { got = product.perform(st) })
	wg.Wait()
	return want, got
}
