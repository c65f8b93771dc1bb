import "uplot/dist/uPlot.min.css";
import "./style/tokens.css";
import "./style/page.css";
import "./style/fleet.css";
import "./style/dependency.css";

import { render } from "preact";
import { App } from "./app";
import { feed } from "./feed";

feed.start(); // the first state is on its way while the frame is drawn
render(<App />, document.getElementById("app")!);
