// Command fake stands in for a service: it accepts any flags and serves /readyz. Its name is its first
// argument. The environment variable FAKE_<NAME> may have a mode:
//
//   - die: it exits at the start
//   - unready: /readyz fails
//   - stubborn: it does not stop after SIGTERM
package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	name := os.Args[1]
	mode := os.Getenv("FAKE_" + strings.ReplaceAll(name, "-", "_"))
	flags := map[string]string{}
	for _, a := range os.Args[2:] {
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
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			fmt.Println("fake", name, "reloads")
		}
	}()
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
		address = strings.TrimPrefix(flags["listen-client-http-urls"], "https://")
		flags["tls-cert-file"], flags["tls-private-key-file"] = flags["cert-file"], flags["key-file"]
	case "nats-server":
		fmt.Fprintln(os.Stderr, serveNATSGreeting(flags["addr"]+":"+flags["port"], flags["config"]))
		os.Exit(1)
	}
	server := &http.Server{Addr: address, TLSConfig: &tls.Config{ClientAuth: tls.RequestClientCert}}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(flags["tls-cert-file"], flags["tls-private-key-file"]))
	os.Exit(1)
}

// serveNATSGreeting sends the greeting of a NATS server to each client and accepts TLS, with the
// certificate of the configuration file. It returns only errors.
func serveNATSGreeting(address, config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	files := regexp.MustCompile(`cert_file: "(.*?)", key_file: "(.*?)"`).FindStringSubmatch(string(text))
	own, err := tls.LoadX509KeyPair(files[1], files[2])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			fmt.Fprint(c, "INFO {}\r\n")
			if err := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{own}}).Handshake(); err != nil {
				fmt.Println("TLS handshake error:", err)
			}
		}()
	}
}
