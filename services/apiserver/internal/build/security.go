package build

import (
	"context"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// security decides about requests.
type security struct {
	audit *auditing
	authn *authentication
	authz *authorization
	flow  *flowConfig
}

func newSecurity(ctx context.Context, b *base, o *config.Options, k *caches, client *internalclient.Client, audit *auditing) (*security, error) {
	s := &security{audit: audit, flow: newFlow(b, &o.Requests, k, client)}
	var err error
	if s.authn, err = newAuthentication(ctx, b, &o.Authentication, o.Serving.KeyFile, k, client); err != nil {
		return nil, err
	}
	s.authz, err = newAuthorization(b, &o.Authorization, k)
	return s, err
}
