package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"binnacle/e2e/golden"
)

// request is one request of a recorded conversation.
type request struct {
	method, path, media, accept, body string
}

// recordedRequests reads the requests of all golden cases.
func recordedRequests(project string) ([]request, error) {
	cases, err := golden.Load([]string{filepath.Join(project, "e2e", "golden", "cases")}, nil, true)
	if err != nil {
		return nil, err
	}
	var out []request
	for _, c := range cases {
		for _, step := range c.Steps {
			recorded := request{body: step.Body, media: "application/json", accept: "application/json"}
			if step.JSON != nil {
				b, err := json.Marshal(step.JSON)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c.File, err)
				}
				recorded.body = string(b)
			}
			for k, v := range step.Headers {
				switch http.CanonicalHeaderKey(k) {
				case "Content-Type":
					recorded.media = v
				case "Accept":
					recorded.accept = v
				}
			}
			recorded.method, recorded.path, _ = strings.Cut(step.Request, " ")
			recorded.path, recorded.body = strings.ReplaceAll(recorded.path, "{ns}", "hostile"), strings.ReplaceAll(recorded.body, "{ns}", "hostile")
			out = append(out, recorded)
		}
	}
	return out, nil
}

// mutator derives malformed requests from recorded ones.
type mutator struct {
	*rand.Rand
	recorded []request
}

// pickOne returns a random choice.
func pickOne[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

// mutatedRequest returns a recorded request with one to three random changes.
func (m mutator) mutatedRequest() request {
	original := m.recorded[m.IntN(len(m.recorded))]
	for range 1 + m.IntN(3) {
		switch m.IntN(6) {
		case 0:
			original.path = m.mutatePath(original.path)
		case 1:
			original.path = m.addQueryParameter(original.path)
		case 2:
			original.media = pickOne(m.Rand, jsonMedia, yamlMedia, cborMedia, protoMedia, applyMedia, mergePatchMedia,
				strategicPatchMedia, jsonPatchMedia,
				"application/apply-patch+cbor", "text/plain", "", "a/b;c", ";;", "application/json;x=y")
		case 3:
			original.accept = pickOne(m.Rand, jsonMedia, yamlMedia, cborMedia, protoMedia, "*/*", "", ",,;q=x",
				"application/json;as=Table;g=meta.k8s.io;v=v1",
				"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", protoMedia+";stream=watch",
				"application/json;as=Table;g=a;v=b")
		case 4:
			original.method = pickOne(m.Rand, "GET", "POST", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "X")
		default:
			original.body = m.mutateBody(original.body)
		}
	}
	return original
}

// mutatePath makes one random change of a path.
func (m mutator) mutatePath(p string) string {
	path, query, _ := strings.Cut(p, "?")
	parts := strings.Split(path, "/")
	i := m.IntN(len(parts))
	switch m.IntN(7) {
	case 0:
		parts[i] = ""
	case 1:
		parts = append(parts[:i], parts[min(i+1, len(parts)):]...)
	case 2:
		parts[i] += pickOne(m.Rand, "%2f", "%00", "%ff", "..", "%2e%2e", "ä", strings.Repeat("x", 300), ":443")
	case 3:
		other, _, _ := strings.Cut(m.recorded[m.IntN(len(m.recorded))].path, "?")
		parts[i] = pickOne(m.Rand, strings.Split(other, "/")...)
	case 4:
		parts = append(parts, pickOne(m.Rand, "status", "scale", "log", "exec", "proxy", "binding", "eviction",
			"token", "", "approval", "ephemeralcontainers", "finalize"))
	case 5:
		parts = append([]string{"", pickOne(m.Rand, "api", "apis", "watch", "proxy", "openapi")}, parts...)
	default:
		j := m.IntN(len(parts))
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, "/") + "?" + query
}

// addQueryParameter adds a random query parameter.
func (m mutator) addQueryParameter(p string) string {
	path, query, _ := strings.Cut(p, "?")
	values, _ := url.ParseQuery(query)
	name := pickOne(m.Rand, "watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector",
		"fieldSelector", "dryRun", "fieldManager",
		"fieldValidation", "force", "timeout", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks", "pretty",
		"propagationPolicy", "gracePeriodSeconds", "orphanDependents")
	values.Set(name, pickOne(m.Rand, "", "1", "true", "-1", "0", "99999999999999999999", "All", "x", "a in (b,", "!",
		"a=b,c!=d", "metadata.name=x", "Exact", "NotOlderThan",
		"Strict", "Ignore", "Foreground", "1ns", "\x00", strings.Repeat("x", 200)))
	return path + "?" + values.Encode()
}

// mutateBody changes a body as JSON, if it is JSON, or as bytes.
func (m mutator) mutateBody(body string) string {
	var v any
	if m.IntN(8) > 0 && json.Unmarshal([]byte(body), &v) == nil {
		if data, err := json.Marshal(m.mutateValue(v, 0)); err == nil {
			return string(data)
		}
	}
	data := bytes.Clone([]byte(body))
	for range 1 + m.IntN(4) {
		if len(data) > 0 {
			data[m.IntN(len(data))] = byte(m.IntN(256))
		}
	}
	return string(data[:len(data)-min(len(data), m.IntN(2)*m.IntN(20))])
}

// mutateValue changes a value at a random place.
func (m mutator) mutateValue(value any, depth int) any {
	if m.IntN(12) == 0 && depth > 0 {
		return pickOne[any](m.Rand, nil, map[string]any{}, []any{}, []any{nil}, map[string]any{"": nil}, "", "x",
			strings.Repeat("y", 300), "\x00", -1, 1.5, 1e300,
			json.Number("9223372036854775808"), true,
			[]any{map[string]any{"name": []any{nil}}, map[string]any{"name": []any{nil}}}, map[string]any{"$patch": "delete"})
	}
	switch value := value.(type) {
	case map[string]any:
		for k, x := range value {
			switch m.IntN(14) {
			case 0:
				delete(value, k)
			case 1:
				value[k+"x"] = x
			case 2:
				value[pickOne(m.Rand, "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch")+k] = x
			default:
				value[k] = m.mutateValue(x, depth+1)
			}
		}
	case []any:
		for i := range value {
			value[i] = m.mutateValue(value[i], depth+1)
		}
		if len(value) > 0 && m.IntN(6) == 0 {
			return append(value, value[0])
		}
	}
	return value
}

// mutationAttack returns the attack that sends mutated conversations.
func mutationAttack(project string) (attack, error) {
	from, err := recordedRequests(project)
	if err != nil {
		return attack{}, err
	}
	return attack{"mutated conversations", 8, func(ctx context.Context, attacked *target, r *rand.Rand) {
		client := attacked.attackerClient()
		defer client.CloseIdleConnections()
		m := mutator{r, from}
		for range 200 {
			recorded := m.mutatedRequest()
			if recorded.method == "DELETE" && !strings.Contains(recorded.path, "hostile") {
				continue // the objects of the probe client must stay
			}
			if strings.Contains(strings.ToLower(recorded.path+recorded.body), "webhook") {
				continue // the webhooks of the conversations are unreachable, which fails other requests with 500
			}
			req, err := http.NewRequest(recorded.method, attacked.url+recorded.path, strings.NewReader(recorded.body))
			if err != nil {
				continue
			}
			req.Header.Set("Content-Type", recorded.media)
			req.Header.Set("Accept", recorded.accept)
			next, cancel := context.WithTimeout(ctx, 2*time.Second)
			attacked.sendAttack(next, client, req)
			cancel()
			if ctx.Err() != nil {
				return
			}
		}
	}}, nil
}

// malformedRequestAttack returns the attack that sends lines that are not valid HTTP.
func malformedRequestAttack() attack {
	return attack{"malformed requests", 8, func(ctx context.Context, x *target, random *rand.Rand) {
		conn, err := x.dial(ctx, "http/1.1")
		if err != nil {
			return
		}
		defer conn.Close()
		lines := []string{"GET / HTTP/1.1", "GET /api/v1/pods HTTP/9.9", "POST /api HTTP/1.1", "\x00\x01", "Host: a",
			"Host: b", "Content-Length: -1", "Content-Length: 5",
			"Transfer-Encoding: chunked", "Upgrade: websocket", "Connection: upgrade", "Expect: 100-continue",
			"ffffffffffffffff", "Accept: " + strings.Repeat("a/b,", 200), ""}
		for range 30 {
			x.requestCount.Add(1)
			if _, err := fmt.Fprintf(conn, "%s\r\n", pickOne(random, lines...)); err != nil {
				return
			}
		}
	}}
}

// envOr returns the value of an environment variable, or fallback if it is empty.
func envOr(name, fallback string) string {
	if s := os.Getenv(name); s != "" {
		return s
	}
	return fallback
}
