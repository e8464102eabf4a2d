package egress

import "time"

// SetCloseTimeout replaces the time that closed connections wait for konnectivity servers.
func (s *Selector) SetCloseTimeout(d time.Duration) {
	for _, dialer := range s.dialers {
		if k, ok := dialer.proxy.(*konnectivity); ok {
			k.closeTimeout = d
		}
	}
}
