// Command extension is a small extension server. Like a typical one, it identifies its callers by
// the configuration in kube-system/extension-apiserver-authentication and authorizes them through
// the API server.
//
// It serves widgets (ext.example.com/v1) from memory, and the paths that kubectl top uses
// (metrics.k8s.io/v1beta1).
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "address to listen on")
	cert := flag.String("cert", "", "file of the serving certificate, which is reloaded")
	key := flag.String("key", "", "file of its key")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig for the API server")
	flag.Parse()
	if err := run(*listen, *cert, *key, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

// run serves until SIGTERM.
func run(listen, cert, key, kubeconfig string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	s := &server{api: client, widgets: newWidgets(), callers: &callers{api: client}}
	go s.callers.pollPolicy(ctx)
	httpServer := &http.Server{
		Addr: listen, Handler: s, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(cert, key)
				return &pair, err
			},
		},
	}
	go func() {
		<-ctx.Done()
		_ = httpServer.Close()
	}()
	if err := httpServer.ListenAndServeTLS("", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
