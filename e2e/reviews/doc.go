// Package reviews plays recorded conversations about admission webhooks: a client
// asks the API server, which asks a webhook server of the test, which answers as
// recorded. What the webhook server is asked and what the client is answered have
// to be what was recorded from the reference.
package reviews
