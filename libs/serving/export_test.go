package serving

import (
	"net"
	"net/http"
)

// ServeOn serves what a listener accepts, without the work beside it that follows files,
// until stop is called.
func (s *Server) ServeOn(l net.Listener, handler http.Handler) (stop func() error, err error) {
	server, err := s.httpServer(newGate(handler, s.long, s.o.ShutdownRetryAfter, s.limits))
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(shakeHands(l, server.TLSConfig, s.log, s.clients, s.answers, s.heads))
	}()
	return func() error {
		if err := server.Close(); err != nil {
			return err
		}
		<-ended
		return nil
	}, nil
}
