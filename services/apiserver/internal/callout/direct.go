package callout

import (
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Direct makes a client for a service that is configured elsewhere: its address
// and its certificates may change at any time, so each configuration has a client
// and connections of its own, which release lets go of. Redirects are followed.
// Bodies of answers longer than limit bytes are errors. Metrics may be nil.
func Direct(config *rest.Config, limit int64, m *Metrics) (client *http.Client, release func(), err error) {
	c, err := config.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	base, err := connections(c)
	if err != nil {
		return nil, nil, err
	}
	base.DisableCompression = false
	wrapped, err := transport.HTTPWrappersForConfig(c, base)
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: &bounded{m.around(wrapped), limit}}, base.CloseIdleConnections, nil
}
