// Package reviews replays recorded conversations about admission webhooks, flow control and
// aggregated APIs. A client sends a request to the API server, which calls a webhook server of the
// test, which returns the recorded response. The calls of the webhook and the response to the
// client must equal those recorded from kube-apiserver.
package reviews
