package authzwebhook

import "net/http"

// Break replaces the transport to the webhook.
func (z *Authorizer) Break(r http.RoundTripper) { z.client.Client.Transport = r }
