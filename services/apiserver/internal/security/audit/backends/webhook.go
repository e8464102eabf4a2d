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
	// postTimeout is the timeout of one post. In the blocking modes, it also bounds all posts of an
	// event together.
	postTimeout = 30 * time.Second
	maxPosts    = 5
	// backoffFactor is the factor by which the backoff grows. backoffJitter is the maximum random
	// extension, as a fraction.
	backoffFactor, backoffJitter = 1.5, 0.2
	// maxPostedEvent is the maximum size in bytes of an event that is not shortened.
	maxPostedEvent = 32 << 20
	// maxErrorBody is the maximum number of bytes of an error response in the log.
	maxErrorBody = 256
)

// WebhookOptions are the options of the webhook.
type WebhookOptions struct {
	Options
	ConfigFile     string
	InitialBackoff time.Duration
}

// Enabled reports whether the webhook is enabled.
func (o *WebhookOptions) Enabled() bool { return o.ConfigFile != "" }

// Validate returns the errors in the options, with the messages of Kubernetes.
func (o *WebhookOptions) Validate() []error {
	if !o.Enabled() {
		return nil
	}
	return o.Options.Validate(webhookName)
}

// NewWebhook returns the backend that posts events to the server of a kubeconfig. The server need
// not be reachable yet.
func NewWebhook(webhookOptions *WebhookOptions, config Config) (*Backend, error) {
	config.Options = webhookOptions.Options
	service, err := webhookclient.LoadPlain(webhookOptions.ConfigFile, config.Dial)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(service.URL)
	if err != nil {
		return nil, err
	}
	u.RawQuery = url.Values{"timeout": {postTimeout.String()}}.Encode()
	d := &webhookDeliverer{
		client:      service.Client,
		closeClient: service.Close,
		url:         u.String(),
		backoff:     webhookOptions.InitialBackoff,
	}
	if Mode(webhookOptions.Mode) != Batch {
		d.timeout = postTimeout
	}
	encode := func(dst []byte, e *audit.Event) []byte { return e.AppendLine(dst) }
	return newBackend(config, webhookName, d, encode, maxPostedEvent, config.MaxPosts), nil
}

// webhookDeliverer is a deliverer that posts events.
type webhookDeliverer struct {
	client      *http.Client
	closeClient func()
	url         string
	backoff     time.Duration // before the second try
	timeout     time.Duration // of all tries; 0 means none
}

// deliver posts events. It retries after any failure, up to maxPosts posts.
func (d *webhookDeliverer) deliver(ctx context.Context, events [][]byte) (lost int, err error) {
	if d.timeout > 0 { // blocking modes; the event is delivered even if the client has gone
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), d.timeout)
		defer cancel()
	}
	body := eventList(events)
	pause := d.backoff
	for try := 1; ; try++ {
		err = d.post(ctx, body)
		if err == nil {
			return 0, nil
		}
		if try == maxPosts {
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

// eventList returns the body of a post.
func eventList(events [][]byte) []byte {
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

// post sends one request. It returns an error unless the status is 2xx.
func (d *webhookDeliverer) post(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", api.MediaJSON)
	req.Header.Set("Accept", api.MediaJSON+", */*")
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // for the error message only
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("audit webhook returned %s: %q", resp.Status, text)
	}
	return nil
}

// close implements deliverer.
func (d *webhookDeliverer) close() error {
	d.closeClient()
	return nil
}
