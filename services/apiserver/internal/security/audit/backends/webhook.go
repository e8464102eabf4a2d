package backends

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/security/audit"
)

const (
	webhookName = "webhook"
	// tryTime bounds one post, and how long a request waits in the blocking modes.
	tryTime = 30 * time.Second
	tries   = 5
	// backoffFactor is how much longer each pause is than the one before, backoffJitter
	// how much longer it may be by chance.
	backoffFactor, backoffJitter = 1.5, 0.2
	// postsAtOnce bounds batches under way: those behind wait in the queue, and are lost
	// there when it is full.
	postsAtOnce = 8
	// maxPost bounds an event that is posted whole, in bytes.
	maxPost = 32 << 20
	// maxRefusal is how much is told of why a post was refused, in bytes.
	maxRefusal = 256
)

// WebhookOptions of the webhook.
type WebhookOptions struct {
	Options
	ConfigFile     string
	InitialBackoff time.Duration
}

// Enabled tells whether there is to be a webhook.
func (o *WebhookOptions) Enabled() bool { return o.ConfigFile != "" }

// Validate tells what is wrong, in the words of Kubernetes.
func (o *WebhookOptions) Validate() []error {
	if !o.Enabled() {
		return nil
	}
	return o.Options.Validate(webhookName)
}

// NewWebhook makes the backend that posts events to the service of a kubeconfig, which
// need not be there yet.
func NewWebhook(o *WebhookOptions, c Config) (*Backend, error) {
	c.Options = o.Options
	service, err := webhookclient.LoadPlain(o.ConfigFile, c.Dial)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(service.URL)
	if err != nil {
		return nil, err
	}
	u.RawQuery = url.Values{"timeout": {tryTime.String()}}.Encode()
	p := &posts{client: service.Client, closed: service.Close, url: u.String(), pause: o.InitialBackoff}
	if Mode(o.Mode) != Batch {
		p.limit = tryTime
	}
	return newBackend(c, webhookName, p, func(dst []byte, e *audit.Event) []byte { return e.AppendLine(dst) }, maxPost, postsAtOnce), nil
}

// posts implements deliverer.
type posts struct {
	client *http.Client
	closed func()
	url    string
	pause  time.Duration // before the second try
	limit  time.Duration // of all tries; 0 is none
}

// deliver posts events, and again when that fails: any failure may be over soon.
func (p *posts) deliver(ctx context.Context, events [][]byte) (lost int, err error) {
	if p.limit > 0 { // for a request, of which is told even when its client has gone
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), p.limit)
		defer cancel()
	}
	body := list(events)
	pause := p.pause
	for try := 1; ; try++ {
		if err = p.post(ctx, body); err == nil {
			return 0, nil
		}
		if try == tries {
			return len(events), err
		}
		timer := time.NewTimer(time.Duration(float64(pause) * (1 + backoffJitter*rand.Float64())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return len(events), err
		}
		pause = time.Duration(float64(pause) * backoffFactor)
	}
}

// list is the body of a post.
func list(events [][]byte) []byte {
	size := 128
	for _, e := range events {
		size += len(e)
	}
	b := append(make([]byte, 0, size), `{"kind":"EventList","apiVersion":"`+audit.Version+`","metadata":{},"items":[`...)
	for i, e := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = audit.AppendItem(b, e)
	}
	return append(b, "]}\n"...)
}

func (p *posts) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", api.MediaJSON)
	req.Header.Set("Accept", api.MediaJSON+", */*")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // as much as there is
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("the audit webhook answered %s: %q", resp.Status, said)
	}
	return nil
}

func (p *posts) close() error {
	p.closed()
	return nil
}
