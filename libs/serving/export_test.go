package serving

import (
	"net"
	"net/http"

	"binnacle/libs/serving/conns"
)

// ServeOn serves connections of listener until stop is called, without watching files.
func (s *Server) ServeOn(listener net.Listener, handler http.Handler) (stop func() error, err error) {
	server, err := s.httpServer(newGate(handler, nil, s.options.ShutdownRetryAfter, s.limits, s.headers))
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(conns.NewListener(listener, server.TLSConfig, s.log, s.connMetrics, s.longResponses, s.headers))
	}()
	return func() error {
		if err := server.Close(); err != nil {
			return err
		}
		<-ended
		return nil
	}, nil
}
