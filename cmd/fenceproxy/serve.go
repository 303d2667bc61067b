package main

type serveCmd struct{}

func (serveCmd) Run() error { return nil }

type checkCmd struct{}

func (checkCmd) Run() error { return nil }

type installCmd struct{}

func (installCmd) Run() error { return nil }
