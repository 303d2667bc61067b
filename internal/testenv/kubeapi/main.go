// Command kubeapi is a real Kubernetes API server and a real etcd member in one
// process, for tests that need the API server's own validation, storage and access
// rules but no cluster.
//
// It takes kube-apiserver's command line. When KUBEAPI_ETCD_DIR is set, it first
// starts etcd on that data directory, listening on KUBEAPI_ETCD_CLIENT and
// KUBEAPI_ETCD_PEER, which are URLs. Data survives the process but not the machine:
// etcd does not sync its files.
//
// It is a module of its own, so that what it needs stays out of fenceproxy's go.mod.
package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(run()) }

func run() int {
	if dir := os.Getenv("KUBEAPI_ETCD_DIR"); dir != "" {
		stop, err := startEtcd(dir, os.Getenv("KUBEAPI_ETCD_CLIENT"), os.Getenv("KUBEAPI_ETCD_PEER"))
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubeapi: starting etcd:", err)
			return 1
		}
		defer stop()
	}
	return cli.Run(app.NewAPIServerCommand())
}

// startEtcd starts a member that is a cluster by itself, and waits until it serves.
func startEtcd(dir, client, peer string) (stop func(), err error) {
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "error"
	c.UnsafeNoFsync = true
	if c.ListenClientUrls, err = urls(client); err != nil {
		return nil, err
	}
	if c.ListenPeerUrls, err = urls(peer); err != nil {
		return nil, err
	}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e.Close, nil
	case err = <-e.Err():
	case <-time.After(time.Minute):
		err = errors.New("not ready after a minute")
	}
	e.Close()
	return nil, err
}

func urls(s string) ([]url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	return []url.URL{*u}, nil
}
