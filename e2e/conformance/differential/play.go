package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// settleTimeout limits how long the controllers of the servers may take.
const settleTimeout = 3 * time.Second

// player plays conversations on both servers. It may be used concurrently.
type player struct {
	reference, product *server
	found              *groups
	// alone is held by all conversations; a conversation with shared objects locks it exclusively.
	alone sync.RWMutex
}

// play plays a conversation until it ends or the context does.
func (p *player) play(ctx context.Context, c *conversation) {
	if c.shared {
		p.alone.Lock()
		defer p.alone.Unlock()
	} else {
		p.alone.RLock()
		defer p.alone.RUnlock()
	}
	reference, product := newSession(p.reference, c.namespace), newSession(p.product, c.namespace)
	for i, s := range c.steps {
		if ctx.Err() != nil {
			return
		}
		want, got := exchange(reference, product, s)
		differences := compare(want, got)
		for began := time.Now(); s.settles && len(differences) > 0 && time.Since(began) < settleTimeout; differences = compare(want, got) {
			<-time.After(pollInterval)
			want, got = exchange(reference, product, s)
		}
		for _, d := range differences {
			p.found.add(finding{difference: d, conversation: c, step: i})
		}
		if s.changes() && (want.status < http.StatusMultipleChoices) != (got.status < http.StatusMultipleChoices) {
			break // the states of the servers differ from now on
		}
	}
	for _, s := range cleanup(c) {
		exchange(reference, product, s)
	}
}

// cleanup returns the requests that remove the objects of a conversation that affect other conversations.
func cleanup(c *conversation) []step {
	out := []step{{method: http.MethodDelete, path: "/api/v1/namespaces/{ns}"}}
	for _, s := range c.steps {
		if s.method == http.MethodPost && strings.HasPrefix(s.path, definitions) {
			if name, ok := lookup(s.object, "metadata.name").(string); ok && !strings.HasSuffix(name, customGroup) {
				out = append(out, step{method: http.MethodDelete, path: definitions + "/" + name})
			}
		}
	}
	if c.shared {
		for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicybindings", "validatingadmissionpolicies"} {
			out = append(out, step{method: http.MethodDelete, path: "/apis/admissionregistration.k8s.io/v1/" + resource})
		}
	}
	return out
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
