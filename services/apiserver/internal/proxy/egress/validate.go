package egress

import (
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate returns errors with the paths and the wording of Kubernetes, including its oddities.
func (c *Configuration) validate() (errs field.ErrorList) {
	path := field.NewPath("service", "connection")
	for _, selection := range c.EgressSelections {
		t := selection.Connection.Transport
		switch selection.Connection.ProxyProtocol {
		case Direct:
			if t != nil {
				errs = append(errs, field.Invalid(path.Child("transport"), "direct", "Transport config should be absent for direct connect"))
			}
		case HTTPConnect:
			errs = append(errs, t.validateConnect(path)...)
		case GRPC:
			errs = append(errs, t.validateGRPC(path)...)
		default:
			errs = append(errs,
				field.NotSupported(path.Child("protocol"), selection.Connection.ProxyProtocol, []Protocol{Direct, HTTPConnect, GRPC}))
		}
	}
	seen := map[Network]bool{}
	for i, selection := range c.EgressSelections {
		n := selection.network()
		known := []Network{Cluster, ControlPlane, Etcd}
		switch {
		case seen[n]:
			errs = append(errs, field.Duplicate(path.Index(i), string(n)))
		case !slices.Contains(known, n):
			errs = append(errs, field.NotSupported(path, n, known))
		}
		seen[n] = true
	}
	return errs
}

// validateConnect returns the errors of the transport of an HTTPConnect proxy.
func (t *Transport) validateConnect(at *field.Path) field.ErrorList {
	switch {
	case t == nil:
		return field.ErrorList{field.Required(at.Child("transport"), "transport must be set for HTTPConnect")}
	case t.TCP != nil && t.UDS != nil:
		return field.ErrorList{field.Invalid(at.Child("tcp"), t.TCP, "TCP and UDS cannot both be set")}
	case t.TCP != nil:
		return t.TCP.validate(at)
	case t.UDS != nil:
		return t.UDS.validate(at)
	default:
		return field.ErrorList{field.Required(at.Child("tcp"), "One of TCP or UDS must be set")}
	}
}

// validateGRPC returns the errors of the transport of a GRPC proxy.
func (t *Transport) validateGRPC(at *field.Path) field.ErrorList {
	switch {
	case t == nil:
		return field.ErrorList{field.Required(at.Child("transport"), "transport must be set for GRPC")}
	case t.UDS == nil:
		return field.ErrorList{field.Required(at.Child("uds"), "UDS must be set with GRPC")}
	default:
		return t.UDS.validate(at)
	}
}

// validate returns an error if the socket is missing.
func (u *UDSTransport) validate(at *field.Path) field.ErrorList {
	if u.UDSName == "" {
		return field.ErrorList{field.Invalid(at.Child("udsName"), "nil", "UDSName should be present for UDS connections")}
	}
	return nil
}

const (
	plainScheme  = "http://"
	secureScheme = "https://"
)

// validate checks the scheme of the URL, and that TLS is configured only for https.
func (t *TCPTransport) validate(at *field.Path) field.ErrorList {
	switch {
	case strings.HasPrefix(t.URL, secureScheme):
		return t.TLSConfig.validate(at.Child("tlsConfig"))
	case !strings.HasPrefix(t.URL, plainScheme):
		return field.ErrorList{field.Invalid(at.Child("url"), t.URL, "supported connection protocols are http:// and https://")}
	case t.TLSConfig != nil:
		return field.ErrorList{field.Invalid(at.Child("tlsConfig"), "nil", "TLSConfig config should not be present when using HTTP")}
	default:
		return nil
	}
}

// validate checks that the files exist. The CA bundle is optional.
func (c *TLSConfig) validate(at *field.Path) (errs field.ErrorList) {
	if c == nil {
		return field.ErrorList{field.Required(at, "TLSConfig must be present when using HTTPS")}
	}
	file := func(name, path, subject string, required bool) {
		switch {
		case path == "" && required:
			errs = append(errs, field.Invalid(at.Child(name), "nil", "Using TLS requires "+name))
		case path != "":
			if _, err := os.Stat(path); err != nil {
				errs = append(errs, field.Invalid(at.Child(name), path, "TLS "+subject+" does not exist"))
			}
		}
	}
	file("caBundle", c.CABundle, "config ca bundle", false)
	file("clientCert", c.ClientCert, "client cert", true)
	file("clientKey", c.ClientKey, "client key", true)
	return errs
}
