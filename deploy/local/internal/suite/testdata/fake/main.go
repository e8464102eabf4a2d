// Command fake stands in for a service: it accepts any flags, serves /readyz, and fails as the
// environment variable FAKE_<NAME> requests. Its name comes from its file or its first argument.
package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	name := filepath.Base(os.Args[0])
	if !strings.HasPrefix(os.Args[1], "-") {
		name = os.Args[1]
	}
	mode := os.Getenv("FAKE_" + strings.ReplaceAll(name, "-", "_"))
	flags := map[string]string{}
	for _, a := range os.Args[1:] {
		key, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		flags[key] = value
	}
	fmt.Println("fake", name, "begins")
	if mode == "die" {
		fmt.Fprintln(os.Stderr, "fatal: cannot start")
		os.Exit(3)
	}
	for _, path := range flags {
		if !strings.HasSuffix(path, "kubeconfig") {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	http.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if mode == "unready" {
			http.Error(w, "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed", http.StatusInternalServerError)
			return
		}
		if len(r.TLS.PeerCertificates) > 0 {
			fmt.Println("asked by", r.TLS.PeerCertificates[0].Subject.CommonName)
		}
	})
	http.HandleFunc("/die", func(http.ResponseWriter, *http.Request) {
		fmt.Print("line without an end")
		os.Exit(4)
	})
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		if mode == "stubborn" {
			time.Sleep(time.Hour)
		}
		fmt.Println("fake", name, "ends")
		os.Exit(0)
	}()
	// etcd and NATS have different flags and paths.
	http.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	address := flags["bind-address"] + ":" + flags["secure-port"]
	switch name {
	case "etcd":
		address = strings.TrimPrefix(flags["listen-client-urls"], "https://")
		flags["tls-cert-file"], flags["tls-private-key-file"] = flags["cert-file"], flags["key-file"]
	case "nats-server":
		fmt.Fprintln(os.Stderr, greet(flags["addr"]+":"+flags["port"]))
		os.Exit(1)
	}
	server := &http.Server{Addr: address, TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert}}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(flags["tls-cert-file"], flags["tls-private-key-file"]))
	os.Exit(1)
}

// greet sends the greeting of a NATS server.
func greet(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		fmt.Fprint(c, "INFO {}\r\n")
		c.Close()
	}
}
