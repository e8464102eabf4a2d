// Command differential sends the same random requests to kube-apiserver and to binnacle and prints
// the differences between their responses, grouped by their likely cause. Requests depend on the
// seed only. A difference that no entry of the file of accepted differences matches is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// options are the flags of the command.
type options struct {
	requests, workers int
	seed              uint64
	bin, reference    string
	servers           string
	kinds, cases      string
	accepted, only    string
	keep              bool
}

func main() {
	var o options
	flag.IntVar(&o.requests, "requests", 10000, "number of requests to each server")
	flag.IntVar(&o.workers, "workers", 8, "number of concurrent conversations")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the requests")
	flag.StringVar(&o.bin, "bin", "", "folder with the binaries apiserver and etcd")
	flag.StringVar(&o.reference, "kube-apiserver", "", "path of kube-apiserver; defaults to the one that make conformance-tools builds")
	flag.StringVar(&o.servers, "servers", "", "URLs of a running kube-apiserver and a running binnacle, separated by a comma; empty starts both")
	flag.StringVar(&o.kinds, "kinds", "../../services/apiserver/internal/api/kinds/builtin/testdata/kinds", "folder with valid objects of the kinds")
	flag.StringVar(&o.cases, "cases", "../golden/cases", "folder with golden conversations")
	flag.StringVar(&o.accepted, "accepted", "differential/accepted.txt", "file with the accepted differences")
	flag.StringVar(&o.only, "only", "", "regular expression for the names of conversations, such as ^pods; empty selects all")
	flag.BoolVar(&o.keep, "keep", false, "only start the servers and print their URLs; they run until the command is interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	list, err := readAccepted(o.accepted)
	if err != nil {
		return err
	}
	reference, product, stop, err := servers(ctx, o)
	if err != nil {
		return err
	}
	defer stop()
	if o.keep {
		fmt.Printf("-servers=%s,%s\n", reference.url, product.url)
		<-ctx.Done()
		return nil
	}
	g, err := newGenerator(o, reference, product)
	if err != nil {
		return err
	}
	found, sent := playAll(ctx, g, reference, product, o)
	return report(found, list, sent)
}

// servers returns the servers of the flags, or starts them.
func servers(ctx context.Context, o options) (reference, product *server, stop func(), err error) {
	if first, second, ok := strings.Cut(o.servers, ","); ok {
		return newServer("kube-apiserver", first), newServer("binnacle", second), func() {}, nil
	}
	if o.reference == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, nil, nil, err
		}
		o.reference = filepath.Join(cache, "binnacle-conformance", kubernetesVersion, "kube-apiserver")
	}
	dir, err := os.MkdirTemp("", "differential")
	if err != nil {
		return nil, nil, nil, err
	}
	p := &processes{dir: dir}
	stop = func() {
		p.stop()
		_ = os.RemoveAll(dir)
	}
	fmt.Printf("start kube-apiserver and binnacle; logs are in %s\n", dir)
	reference, product, err = p.startServers(ctx, programs{reference: o.reference, product: filepath.Join(o.bin, "apiserver"), etcd: filepath.Join(o.bin, "etcd")})
	if err != nil {
		p.stop() // keeps the logs
		return nil, nil, nil, err
	}
	return reference, product, stop, nil
}

// kubernetesVersion is the version that make conformance-tools builds.
const kubernetesVersion = "v1.33.13"

func newGenerator(o options, reference, product *server) (*generator, error) {
	first, second := &session{server: reference, vars: map[string]string{}}, &session{server: product, vars: map[string]string{}}
	err := createCustom(first, second)
	if err != nil {
		return nil, err
	}
	g := &generator{seed: o.seed}
	if g.kinds, err = loadKinds(reference); err != nil {
		return nil, err
	}
	if err := addCustomBases(g.kinds); err != nil {
		return nil, err
	}
	if err := readBases(g.kinds, o.kinds, o.cases); err != nil {
		return nil, err
	}
	g.golden, err = loadGolden(o.cases)
	return g, err
}

// playAll plays conversations until enough requests are sent. It returns the differences and the
// number of requests to each server.
func playAll(ctx context.Context, g *generator, reference, product *server, o options) (*groups, int) {
	match := regexp.MustCompile(o.only)
	found, sent, printed := newGroups(), 0, time.Now()
	p := &player{reference: reference, product: product, found: found}
	waiting := make(chan *conversation)
	var wg sync.WaitGroup
	for range o.workers {
		wg.Go(func() {
			for c := range waiting {
				p.play(ctx, c)
			}
		})
	}
	for n := 0; sent < o.requests && ctx.Err() == nil; n++ {
		c := g.conversation(n)
		if !match.MatchString(c.name) {
			continue
		}
		waiting <- c
		sent += len(c.steps)
		if time.Since(printed) > 10*time.Second {
			printed = time.Now()
			fmt.Printf("%d of %d requests, %d groups of differences\n", sent, o.requests, found.len())
		}
	}
	close(waiting)
	wg.Wait()
	return found, sent
}

// report prints the groups of differences that are not accepted. It returns an error if there are
// any.
func report(found *groups, list []*accepted, sent int) error {
	unexplained, tolerated := 0, 0
	for _, one := range found.sorted() {
		if acceptance(list, one.class) != nil {
			tolerated++
			continue
		}
		unexplained++
		one.print(os.Stdout, unexplained)
	}
	fmt.Printf("\n%d requests to each server: %d groups of differences are not accepted, %d are\n", sent, unexplained, tolerated)
	if unexplained > 0 {
		return errors.New("the servers differ")
	}
	return nil
}
