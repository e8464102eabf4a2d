package authzwebhook

import "net/http"

// Break replaces the transport to the webhook.
func (a *Authorizer) Break(r http.RoundTripper) { a.client.Client.Transport = r }
