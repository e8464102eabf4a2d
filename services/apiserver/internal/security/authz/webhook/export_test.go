package webhook

import "net/http"

// Break replaces the way to the service.
func (z *Authorizer) Break(r http.RoundTripper) { z.client.Client.Transport = r }
