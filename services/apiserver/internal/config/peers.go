package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/pflag"

	"binnacle/libs/features"
)

// PeerOptions configure requests to other API servers.
type PeerOptions struct {
	CAFile, AdvertiseIP, AdvertisePort string
}

func (o *PeerOptions) addFlags(f *pflag.FlagSet) {
	const gate = " Needs the feature gate UnknownVersionInteroperabilityProxy."
	f.StringVar(&o.CAFile, "peer-ca-file", "", "CA bundle that verifies the other API servers to which requests for resources that this server does not serve are proxied. If empty, requests are not proxied. The file is reloaded when it changes."+gate+".")
	f.StringVar(&o.AdvertiseIP, "peer-advertise-ip", "", "Address at which other API servers reach this one. Defaults to --advertise-address."+gate+".")
	f.StringVar(&o.AdvertisePort, "peer-advertise-port", "", "Port at which other API servers reach this one. Defaults to --secure-port."+gate+".")
}

func (o *Options) validatePeers() (errs []error) {
	const gate = features.UnknownVersionInteroperabilityProxy
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	p := &o.Aggregation.Peers
	if !o.Features.Enabled(gate) {
		for _, f := range []struct{ name, value string }{{"peer-ca-file", p.CAFile}, {"peer-advertise-ip", p.AdvertiseIP}, {"peer-advertise-port", p.AdvertisePort}} {
			if f.value != "" {
				bad("--%s requires %s feature to be turned on", f.name, gate)
			}
		}
		return errs
	}
	if p.CAFile != "" && (o.Aggregation.ProxyClient.CertFile == "" || o.Aggregation.ProxyClient.KeyFile == "") {
		errs = append(errs, errors.New("--peer-ca-file needs --proxy-client-cert-file and --proxy-client-key-file, with which this server authenticates to other API servers"))
	}
	if p.AdvertiseIP != "" {
		if ip := net.ParseIP(p.AdvertiseIP); ip == nil || ip.IsUnspecified() || ip.IsMulticast() {
			bad("--peer-advertise-ip %q is not an address at which a server can be reached", p.AdvertiseIP)
		}
	}
	if p.AdvertisePort != "" {
		if n, err := strconv.ParseUint(p.AdvertisePort, 10, 16); err != nil || n == 0 {
			bad("--peer-advertise-port %q is not a port", p.AdvertisePort)
		}
	}
	return errs
}
