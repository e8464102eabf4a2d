package app

import (
	"context"
	"time"

	"binnacle/services/apiserver/internal/features"
	"binnacle/services/apiserver/internal/storageversions"
)

// sayStorageVersions makes what says which versions this replica stores, behind its gates.
func (p *parts) sayStorageVersions(identity string) func(context.Context) error {
	if on := p.options.Features.Enabled; !on(features.StorageVersionAPI) || !on(features.APIServerIdentity) {
		return nil
	}
	m := storageversions.New(p.loopback, identity, p.catalog, p.served, time.Now)
	p.held = m.Held
	return m.Update
}
